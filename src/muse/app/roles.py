"""Role files: what agents can be spawned as. `.muse/agents/*.md` and `.claude/agents/*.md`, a project's and the user's.

Read once at each opening and recorded in `session.opened`, so that decisions need no file. They are others' texts:
bounded, known secrets masked, no link out of the project followed, and what is not understood is said, never fatal. A
role gives no rights: its mode is taken only where it is stricter, its tools only where the parent has them.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from muse.app.front_matter import Value, read_front_matter
from muse.config import user_file
from muse.decide.agent_tools import NAMES
from muse.decide.harmless import is_secret
from muse.decide.permission import MODES
from muse.event.content import Role, Settings
from muse.event.text import clean, cut

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets

ROLES_MAX: Final = 64
FILES_LOOKED_AT_MAX: Final = 512
FOLDERS_MAX: Final = 32
"""So many folders above the workspace are looked into, up to the top of its repository."""
FILE_BYTES_MAX: Final = 64 * 1024
ALL_BYTES_MAX: Final = 256 * 1024
DESCRIPTION_CHARACTERS_MAX: Final = 1_000

OFFERED: Final = frozenset(
    {"read", "write", "edit", "glob", "grep", "shell", "output", "recall", "stop", "diff", "apply", *NAMES}
)
"""The tools that sessions have."""

_name: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TOOLS: Final[dict[str, tuple[str, ...]]] = {
    "read": ("read",), "write": ("write",), "edit": ("edit",), "multiedit": ("edit",), "bash": ("shell", "output"),
    "bashoutput": ("output",), "killbash": ("stop",), "killshell": ("stop",), "glob": ("glob",), "ls": ("glob",),
    "grep": ("grep",), "task": ("spawn", "wait", "result"), "agent": ("spawn", "wait", "result"),
    "askuserquestion": ("ask",),
}  # fmt: skip
"""Names that Claude Code gives to tools, in small letters, and ours."""
_ALWAYS: Final = ("recall", "output")
"""Tools that only read what the agent itself has done."""
_MODES: Final = {"acceptEdits": "accept-edits", "bypassPermissions": "yolo", "dontAsk": "default"} | {
    mode: str(mode) for mode in MODES
}
_SHORT_NAMES: Final = frozenset({"sonnet", "opus", "haiku", "opusplan", "best", "default"})
"""What another program calls models. No provider knows them by these."""
_KNOWN: Final = frozenset({"name", "description", "tools", "model", "mode", "permissionMode", "isolation", "color"})


class Notice(msgspec.Struct, frozen=True):
    """What of a role file was not followed. `ignored`: there is no such role at all."""

    path: str
    says: str
    ignored: bool = False


class Roles(msgspec.Struct, frozen=True):
    """The roles that were found, by name, and what was not followed."""

    roles: tuple[Role, ...]
    notices: tuple[Notice, ...]


def find_roles(
    workspace: Path,
    *,
    providers: Iterable[str] = (),
    tools: Iterable[str] = OFFERED,
    secrets: "KnownSecrets | None" = None,
    environment: Mapping[str, str] = os.environ,
) -> Roles:
    """All roles that hold in a workspace, looked for up to the top of its repository. The nearest of a name wins,
    `.muse` over `.claude`. `providers` can be asked, `tools` are on offer: what else a file names is not followed."""
    reader = _Reader(frozenset(providers), frozenset(tools), secrets)
    for folder, within in _folders(workspace, environment):
        reader.take(folder, within)
    roles = sorted(reader.roles.values(), key=lambda role: role.name)
    return Roles(tuple(roles), tuple(reader.notices))


def settings_roles(workspace: Path, settings: Settings, secrets: "KnownSecrets | None" = None) -> Roles:
    """The roles of a session that is opened with these settings."""
    known = {settings.provider, *(ref.provider for ref in (*settings.models, *settings.fallbacks))}
    return find_roles(workspace, providers=known, secrets=secrets)


def _folders(workspace: Path, environment: Mapping[str, str]) -> Iterator[tuple[Path, Path | None]]:
    """Where role files may be, nearest first, with the folder that a project's may not lead out of."""
    above = [workspace, *workspace.parents][:FOLDERS_MAX]
    top = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), 0)
    above = above[: top + 1]
    for folder in above:
        for name in (".muse", ".claude"):
            yield folder / name / "agents", above[-1]
    yield user_file(environment).parent / "agents", None
    home = environment.get("HOME", "")
    if Path(home).is_absolute():
        yield Path(home) / ".claude" / "agents", None


class _Reader:
    def __init__(self, providers: frozenset[str], tools: frozenset[str], secrets: "KnownSecrets | None") -> None:
        self.roles: dict[str, Role] = {}
        self.notices: list[Notice] = []
        self._providers, self._tools, self._secrets = providers, tools, secrets
        self._left, self._looked = ALL_BYTES_MAX, 0

    def take(self, folder: Path, within: Path | None) -> None:
        """The roles of one folder."""
        try:
            paths = sorted(path for path in folder.iterdir() if path.suffix == ".md")
        except OSError:
            return
        for path in paths:
            self._looked += 1
            if self._looked > FILES_LOOKED_AT_MAX:
                self._say(folder, f"more than {FILES_LOOKED_AT_MAX} files of roles are not looked at", ignored=True)
                return
            if (data := self._bytes(path, within)) is not None:
                self._role(path, data, claude=folder.parent.name == ".claude")

    def _say(self, path: Path, says: str, *, ignored: bool = False) -> None:
        self.notices.append(Notice(clean(str(path)).text, clean(says).text, ignored))

    def _bytes(self, path: Path, within: Path | None) -> bytes | None:
        try:
            real = path.resolve(strict=True)
            if within is not None:
                inside = real.is_relative_to(within.resolve())
                if not inside or is_secret(str(real.relative_to(within.resolve()))):
                    self._say(path, "it is a link to a file elsewhere", ignored=True)
                    return None
            if not real.is_file():
                return None
            with real.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except (OSError, RuntimeError) as error:
            self._say(path, f"it cannot be read: {getattr(error, 'strerror', None) or error}", ignored=True)
            return None
        return data if self._secrets is None else self._masked(data)

    def _masked(self, data: bytes) -> bytes:
        assert self._secrets is not None
        masked = self._secrets.mask_bytes(data)
        return self._secrets.without_part_at_end(masked) if len(data) > FILE_BYTES_MAX else masked

    def _role(self, path: Path, data: bytes, *, claude: bool) -> None:
        found = read_front_matter(clean(data).text)
        for says in found.notices:
            self._say(path, says)
        fields = found.fields
        name = _word(fields.get("name")) or path.stem
        mode = _word(fields.get("mode")) or _word(fields.get("permissionMode"))
        wrong = self._unfit(name, mode, fields, len(data))
        if wrong:
            self._say(path, wrong, ignored=True)
            return
        if name in self.roles:
            return  # a nearer one has the name
        if unknown := sorted(set(fields) - _KNOWN):
            self._say(path, f"not followed: {', '.join(unknown)}")
        prompt = cut(found.body, FILE_BYTES_MAX, 0)
        if prompt.left_out_bytes or len(data) > FILE_BYTES_MAX:
            self._say(path, f"only its first {FILE_BYTES_MAX // 1024} KiB are taken")
        self._left -= len(data)
        self.roles[name] = Role(
            name=name,
            description=" ".join(_word(fields.get("description")).split())[:DESCRIPTION_CHARACTERS_MAX],
            prompt=prompt.text,
            tools=self._tool_names(path, fields.get("tools")),
            model=self._model(path, _word(fields.get("model")), claude=claude),
            mode=_MODES.get(mode, ""),
            isolation=self._isolation(path, _word(fields.get("isolation"))),
            path=clean(str(path)).text,
        )

    def _unfit(self, name: str, mode: str, fields: Mapping[str, Value], size: int) -> str:
        """Why there is no such role. What would have made it stricter and is not understood makes it none."""
        if _name.fullmatch(name) is None:
            return "its name must be of letters, digits, '-', '_' and '.', 64 at most"
        if mode and mode not in _MODES:
            return f"no such mode: {mode} (there are {', '.join(MODES)})"
        if fields.get("disallowedTools"):
            return "disallowedTools is not understood: name the tools that it may have"
        if "tools" in fields and not fields["tools"]:
            return "its tools are not named: leave the line out for all, or name them"
        if len(self.roles) >= ROLES_MAX and name not in self.roles:
            return f"there are {ROLES_MAX} roles already"
        return "" if size <= self._left else f"all roles together may have {ALL_BYTES_MAX // 1024} KiB"

    def _tool_names(self, path: Path, given: Value | None) -> tuple[str, ...]:
        """Ours, without repetition; () for all. A file that names some gets those, were it none that is known here."""
        names = given if isinstance(given, list) else [part.strip() for part in (given or "").split(",")]
        names = [name for name in names if name]
        if not names or "*" in names:
            return ()
        found: list[str] = []
        unknown: list[str] = []
        for name in names:
            ours = _TOOLS.get(name.casefold(), (name,)) if name not in self._tools else (name,)
            if set(ours) & self._tools:
                found += ours
            else:
                unknown.append(name)
        if unknown:
            self._say(path, f"no such tools here: {', '.join(unknown)}")
        return tuple(dict.fromkeys([*found, *_ALWAYS]))

    def _model(self, path: Path, given: str, *, claude: bool) -> str:
        if given in ("", "inherit"):
            return ""
        provider, slash, name = given.partition("/")
        if slash and name and provider in self._providers:
            return given
        short = given.partition("[")[0].casefold() in _SHORT_NAMES
        if not slash and not claude and not short:
            return given
        what = "no such provider is set up" if slash else "a name of another program's"
        self._say(
            path, f"its model is not followed, {given}: {what}; agents have their parent's (name PROVIDER/MODEL here)"
        )
        return ""

    def _isolation(self, path: Path, given: str) -> Literal["", "shared", "worktree"]:
        if given == "shared":
            return "shared"
        if given == "worktree":
            return "worktree"
        if given:
            self._say(path, f"no such isolation: {given} (there are shared and worktree)")
        return ""


def _word(value: Value | None) -> str:
    return value.strip() if isinstance(value, str) else ""
