"""Which sandbox a session gets: the mode that is wanted, and the strongest thing of this machine that can keep it.

A mode that somebody asked for is kept or the session does not begin; only the default gives way, and says so. Order:
Landlock with a mount namespace of our own (it lacks nothing and costs least), bubblewrap, Landlock alone.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from muse.effect.runner import confine
from muse.effect.sandbox import bubblewrap
from muse.effect.sandbox.machine import Machine
from muse.effect.sandbox.mounts import mounted_elsewhere
from muse.effect.sandbox.places import Places, is_inside
from muse.errors import ConfigError, UsageError
from muse.event.text import clean

MODES: Final = ("read-only", "workspace-write", "off")
DEFAULT: Final = "workspace-write"
FORCED: Final = "MUSE_SANDBOX_ENFORCER"
"""Names the one enforcer to use, for those who want another than the best one."""
LANDLOCK, ALONE, BUBBLEWRAP = "landlock", "landlock-alone", "bubblewrap"

_NO_SIGNALS: Final = (
    f"commands can signal your other processes (that takes Landlock {confine.ABI_SCOPES}, or bubblewrap)"
)
_NO_MOUNTS: Final = "what lies inside the workspace (.muse, .git/hooks, .git/config) is kept from the file tools only"
_MORE: Final = "sandbox_writable in the settings, or muse resume --sandbox off"
_ONLY_TCP: Final = "only TCP is refused, not UDP or name service"


def parse_mode(text: str) -> str:
    """The mode that is meant, "" for the default. Raises ConfigError."""
    word = text.strip().lower().replace("_", "-")
    if word in ("", *MODES):
        return word
    raise ConfigError(f"there is no sandbox mode {text!r}", hint=f"known modes: {', '.join(MODES)}")


def strictness(mode: str) -> int:
    """How much a mode forbids; the default counts as what it is where it can be had."""
    return {"off": 0, "read-only": 2}.get(mode, 1)


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What commands of a session run in.

    `mode` is what holds, `enforcer` what sees to it ("" when off). `wanted` "" was the default. `lacks` says what a
    weaker enforcer leaves open; `why` why there is none although one was wanted. `scratch` is a folder for temporary
    files of this session alone, "" where the usual ones are writable. `made` are the folders that were missing and are
    made for its time.
    """

    mode: str
    wanted: str = ""
    enforcer: str = ""
    network: bool = True
    lacks: tuple[str, ...] = ()
    why: str = ""
    scratch: str = ""
    machine: Machine = Machine()
    places: Places | None = None
    made: set[str] = msgspec.field(default_factory=set)

    @property
    def is_on(self) -> bool:
        """Whether commands are confined."""
        return self.mode != "off"

    @property
    def writable(self) -> tuple[str, ...]:
        """Where commands may write, or might in another mode; nothing is known of that when it is off."""
        return self.places.writable if self.places is not None else ()

    @property
    def says(self) -> str:
        """For the log: mode and enforcer, and the folders that the user let commands write to besides."""
        if not self.is_on:
            return f"off: {DEFAULT} was wanted, but {self.why}" if self.why else "off, as was asked"
        version = f" {self.machine.landlock}" if self.enforcer != BUBBLEWRAP else ""
        network = "" if self.network else ", no network"
        if self.mode == DEFAULT and self.places is not None and self.places.more:
            network += f", writable too: {clean(', '.join(self.places.more)).text}"
        lacks = f"; {'; '.join(self.lacks)}" if self.lacks else ""
        return f"{self.mode} by {self.enforcer}{version}{network}{lacks}"

    @property
    def notice(self) -> str:
        """A line for the person at the start, "" when it is as asked and nothing is left open."""
        if self.why:
            return f"commands run without a sandbox, with all your rights: {self.why} (muse doctor says more)"
        return f"sandbox {self.says}" if self.lacks else ""

    @property
    def told(self) -> str:
        """What a model is told beforehand, with the description of its tool, "" when there is no sandbox."""
        if not self.is_on:
            return ""
        network = "" if self.network else " and has no network"
        return f"A command runs in a sandbox: it can write only in {self._where}{network}; reading is free."

    @property
    def _where(self) -> str:
        if self.mode != DEFAULT:
            return "the temporary folder"
        kept = "" if self.enforcer == ALONE else ", and there not to .git/config, .git/hooks and .muse"
        return f"the workspace and temporary folders{kept}"

    @property
    def hint(self) -> str:
        """What a model is told when a command failed, "" when there is no sandbox."""
        if not self.is_on:
            return ""
        more = _MORE if self.mode == DEFAULT else "muse resume --sandbox workspace-write"
        network = "" if self.network else "; there is no network"
        return (
            f"(sandbox: {self.mode}; it can write only in {self._where}{network}. If this failed by it: work inside, "
            f"or tell the user, who can allow more: {more})"
        )

    @property
    def hint_of_rest(self) -> str:
        """What a model is told when something was left running in the background."""
        if not self.is_on or _NO_SIGNALS in self.lacks:
            return ""
        return "(each command has a sandbox of its own: kill in a later one does not reach these)"

    def for_tree(self, places: Places) -> "Sandbox":
        """The same for an agent with a working tree of its own."""
        return msgspec.structs.replace(self, places=places, made=set()) if self.places is not None else self

    def prepare(self) -> None:
        """Make the folders that it needs. Raises OSError."""
        if self.scratch:
            os.makedirs(self.scratch, mode=0o700, exist_ok=True)
            found = os.lstat(self.scratch)
            if found.st_uid != os.geteuid() or os.path.islink(self.scratch):
                raise UsageError(f"{self.scratch} belongs to somebody else", hint="remove it, or set TMPDIR")
        self._make()

    def close(self) -> None:
        """Take away what `prepare` made, as far as it is empty or was for this session alone. Where a command still
        runs, of this session or of another one of the workspace, its folder stays: were it gone, that command could
        make another one in its place."""
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self.take_back()

    def take_back(self) -> None:
        """Take away the folders that were made, where no command runs any more."""
        for path in self.made - (mounted_elsewhere() if self.made else set()):
            with suppress(OSError):  # it has content, which is not ours
                os.rmdir(path)

    def _make(self) -> None:
        if self.places is None or self.mode != DEFAULT or self.enforcer == ALONE:
            return
        for path in self.places.made:
            with suppress(OSError):  # it is there, or nobody can make it
                os.mkdir(path)
                self.made.add(path)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command."""
        return {**given, "TMPDIR": self.scratch} if self.scratch else dict(given)

    def command(self, argv: list[str], cwd: str) -> tuple[list[str], dict[str, Any]]:
        """The command line to start, and what the keeper is to do about it (`CommandSpec.confine`)."""
        if not self.is_on or self.places is None:
            return argv, {}
        self._make()  # another session of this workspace may have ended meanwhile
        plan = self._plan(self.places)
        if self.enforcer == BUBBLEWRAP:
            return bubblewrap.wrapped(self.machine.bubblewrap, plan, argv, cwd), bubblewrap.marks(
                self.machine.bubblewrap
            )
        return argv, {name: _on_wire(value) for name, value in plan.items()}

    def refusal(self, path: str) -> str:
        """Why a file tool may not write to this path of the workspace, "" when it may."""
        if not self.is_on or self.places is None:
            return ""
        if self.mode == "read-only":
            return "the sandbox is read-only, so no file is written; say what you would change instead"
        full = os.path.join(self.places.workspace, path)
        if any(is_inside(full, kept) for kept in (*self.places.readonly, *self.places.record, *self.places.made)):
            return f"{path} is kept as it is while the sandbox is on: it could run commands later, outside of it"
        return ""

    def _plan(self, places: Places) -> confine.Plan:
        writable = self._writable(places)
        network = "open" if self.network else "namespace" if self._has_network_namespace() else "tcp"
        return {
            "abi": self.machine.landlock,
            "mounts": self.enforcer == LANDLOCK,
            "user": self.machine.user,
            "network": network,
            "writable": list(writable),
            "devices": list(confine.DEVICES),
            "pinned": places.pinned(writable),
            "readonly": list(
                dict.fromkeys(path for path in (*places.readonly, *places.made) if _is_below_any(path, writable))
            ),
            "hidden": list(places.hidden),
            "guarded": list(places.guarded),
            "again": list(places.again) if self.mode == DEFAULT else [],
        }

    def _has_network_namespace(self) -> bool:
        return self.enforcer == BUBBLEWRAP or (self.enforcer == LANDLOCK and self.machine.network)

    def _writable(self, places: Places) -> tuple[str, ...]:
        if self.mode == "read-only":
            return (self.scratch,)
        if self.enforcer != ALONE:
            return places.writable
        kept = (*(path for path in places.writable if not _exposes(path, places)), *places.again)
        return (*kept, self.scratch) if self.scratch else kept


NO_SANDBOX: Final = Sandbox(mode="off", wanted="off")
"""For those who have chosen none."""


def choose(wanted: str, network: bool, machine: Machine, places: Places, session: str, forced: str = "") -> Sandbox:
    """The sandbox of a session; `wanted` "" is the default, `forced` names the only enforcer that may be used. Raises
    UsageError when what was asked for cannot be had here."""
    mode = parse_mode(wanted)
    if mode == "off":
        if not network:
            raise UsageError(
                "without a sandbox the network cannot be taken away", hint="leave out --no-network, or --sandbox off"
            )
        return Sandbox(mode="off", wanted=mode, machine=machine)
    whys = []
    for enforcer in _order(forced):
        why = _why_not(enforcer, mode or DEFAULT, network, machine, places)
        if not why:
            return _with(enforcer, mode, network, machine, places, session)
        whys.append(f"{enforcer}: {why}")
    why = "; ".join(whys)
    if mode or not network:
        asked = f"the sandbox {mode}" if mode else "a session without network"
        raise UsageError(
            f"{asked} cannot be had here: {why}",
            hint="muse doctor says what this machine lacks; to go without: --sandbox off",
        )
    return Sandbox(mode="off", machine=machine, why=why)


def _order(forced: str) -> tuple[str, ...]:
    best = (LANDLOCK, BUBBLEWRAP, ALONE)
    if forced and forced not in best:
        raise ConfigError(f"{FORCED}={forced!r} names nothing", hint=f"known: {', '.join(best)}")
    return (forced,) if forced else best


def _why_not(enforcer: str, mode: str, network: bool, machine: Machine, places: Places) -> str:
    """Why an enforcer cannot keep this here, "" when it can."""
    if enforcer == BUBBLEWRAP:
        if not machine.bubblewrap_works:
            return machine.bubblewrap_says or "not installed"
        return "" if network or machine.bubblewrap_network else "it cannot take the network away here"
    if machine.landlock < confine.ABI_MIN:
        return f"the kernel has version {machine.landlock} of it, and {confine.ABI_MIN} is needed"
    if enforcer == LANDLOCK:
        if not machine.mounts:
            return f"no mount namespace: {machine.why}"
        if not network and not machine.network:
            return "no network namespace"
        return "" if machine.landlock >= confine.ABI_SCOPES else "the kernel's version lets signals out"
    if not network and machine.landlock < confine.ABI_TCP:
        return "it cannot refuse the network in this version"
    exposed = [path for path in places.writable if path not in places.temporary and _exposes(path, places)]
    if exposed and mode == DEFAULT:
        return f"it cannot keep {places.record[0]} and start-up files out of reach inside {exposed[0]}"
    return ""


def _with(enforcer: str, mode: str, network: bool, machine: Machine, places: Places, session: str) -> Sandbox:
    lacks = []
    mode, wanted = mode or DEFAULT, mode
    scratch = mode == "read-only"
    if enforcer == ALONE:
        lacks += [] if machine.landlock >= confine.ABI_SCOPES else [_NO_SIGNALS]
        lacks += [_NO_MOUNTS] if mode == DEFAULT else []
        lacks += [] if network else [_ONLY_TCP]
        scratch = scratch or any(_exposes(path, places) for path in places.temporary)
    folder = os.path.join(os.path.realpath(tempfile.gettempdir()), f"muse-{session}")
    return Sandbox(
        mode=mode, wanted=wanted, enforcer=enforcer, network=network, lacks=tuple(lacks),
        scratch=clean(folder).text if scratch else "", machine=machine, places=places,
    )  # fmt: skip


def _exposes(folder: str, places: Places) -> bool:
    """Whether a writable folder would open the way to what no command may touch."""
    return any(is_inside(path, folder) for path in (*places.record, *places.personal, *places.guarded))


def _is_below_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def _on_wire(value: Any) -> Any:
    """Paths as the runner's wire has them: UTF-8, whatever this process's encoding of file names is."""
    if isinstance(value, list):
        return [_on_wire(one) for one in value]
    return os.fsencode(value).decode("utf-8", "surrogateescape") if isinstance(value, str) else value
