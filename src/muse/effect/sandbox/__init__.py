"""The sandbox: what commands may touch, and which part of the system sees to it. docs/sandbox.md is the contract."""

from muse.effect.sandbox.choice import FORCED, MODES, NO_SANDBOX, Sandbox, choose, parse_mode, strictness
from muse.effect.sandbox.guarded import GuardedTool
from muse.effect.sandbox.machine import Machine, enough_of_this_machine, this_machine
from muse.effect.sandbox.places import Places, places_of, tree_places

__all__ = [
    "FORCED",
    "MODES",
    "NO_SANDBOX",
    "GuardedTool",
    "Machine",
    "Places",
    "Sandbox",
    "choose",
    "enough_of_this_machine",
    "parse_mode",
    "places_of",
    "strictness",
    "this_machine",
    "tree_places",
]
