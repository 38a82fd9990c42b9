"""The detached runner: commands that outlive the host, and what became of them. `protocol.py` describes its files."""

from muse.effect.runner.client import Runner
from muse.effect.runner.leftovers import RunnerLeftovers, found_below, left_process, lives
from muse.effect.runner.processes import boot_id
from muse.effect.runner.protocol import (
    Accepted,
    Attempt,
    CommandLost,
    CommandSpec,
    Exit,
    Exited,
    Identity,
    LeftRunning,
    Lost,
    NeverAccepted,
    RunnerDamaged,
    RunnerError,
    RunnerUnavailable,
    Running,
    StartRefused,
)

__all__ = [
    "Accepted",
    "Attempt",
    "CommandLost",
    "CommandSpec",
    "Exit",
    "Exited",
    "Identity",
    "LeftRunning",
    "Lost",
    "NeverAccepted",
    "Runner",
    "RunnerDamaged",
    "RunnerError",
    "RunnerLeftovers",
    "RunnerUnavailable",
    "Running",
    "StartRefused",
    "boot_id",
    "found_below",
    "left_process",
    "lives",
]
