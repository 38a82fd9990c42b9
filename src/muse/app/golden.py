"""Sessions as fixtures: an export with a manifest, kept in a project's repository and checked in its CI.

    DIR/NAME/session.jsonl   the export
    DIR/NAME/golden.toml     what it is, what is checked, and what the project gave when it was kept

This module must not know who asks: `muse replay --verify --golden` writes fixtures, `muse.testing.golden` checks them.
"""

import difflib
import io
import json
import re
import tempfile
import tomllib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from muse.app.models import rules
from muse.app.places import events, open_log
from muse.app.settings import permission_rules
from muse.config import Permissions, project_file
from muse.decide.agent_tools import agent_tools
from muse.errors import ConfigError, UsageError
from muse.event.content import PermissionRules, ToolSpec
from muse.event.kinds import SessionOpened
from muse.event.told import Lane
from muse.view.visible import visible

if TYPE_CHECKING:
    from muse.log.protocol import Head, Log
    from muse.runtime.check.report import Report
    from muse.runtime.check.substitute import Offer

Check = Literal["decisions", "prompt", "tools", "rules"]
CHECKS: Final[tuple[Check, ...]] = get_args(Check)
MANIFEST: Final = "golden.toml"
EXPORT: Final = "session.jsonl"
ATTRIBUTES: Final = ".gitattributes"
"""Keeps git from giving the export other line ends (gitattributes(5))."""
FORMAT: Final = 1
NAME: Final = re.compile(r"[\w-][^\s:@/\\\x00-\x1f\x7f]{0,79}")
"""A session's name that a folder can have."""


class Told(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[session]`: for readers, and that the export belongs to this manifest."""

    id: str
    events: int
    head: str
    muse: str
    rules: int
    model: str
    mode: str
    workspace: str
    decisions: int
    requests: int


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[project]`: what the project's settings said, and which instruction files it had."""

    instructions: tuple[str, ...] = ()
    mode: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Tools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools]`: those that muse brought, and what the machine added to their descriptions."""

    names: tuple[str, ...] = ()
    told: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a fixture is."""

    format: int
    checks: tuple[Check, ...]
    session: Told
    project: Given = Given()
    tools: Tools = Tools()


class Fixture(msgspec.Struct, frozen=True):
    """A fixture as it stands in its folder."""

    name: str
    folder: Path
    manifest: Manifest


class Kept(msgspec.Struct, frozen=True):
    """What was done with a fixture: `made`, `same` or `replaced`, and what its manifest says other than before."""

    folder: Path
    did: Literal["made", "same", "replaced"]
    difference: tuple[str, ...] = ()


# -- what a project offers ---------------------------------------------------------------------------------------------


def offer_of(workspace: Path) -> "Offer":
    """Instruction files, rules, mode and tools that a session of this folder would get today from the project and from
    muse, whoever asks and on whatever machine. Raises ConfigError for settings that cannot be read."""
    from muse.runtime.check.substitute import Offer
    from muse.runtime.host import instructions

    top = _top(workspace)
    found = instructions(workspace, str(top))
    relative = tuple(
        msgspec.structs.replace(one, path=Path(one.path).relative_to(top).as_posix()) for one in found
    )  # fmt: skip
    table = _project_table(workspace)
    permissions = _converted(table.get("permissions", {}), Permissions, workspace)
    said = permission_rules(permissions)
    return Offer(instructions=relative, rules=said, mode=_mode(table), tools=_tools())


def _top(workspace: Path) -> Path:
    """The folder of the repository that this one is in, told without starting git."""
    found = (folder for folder in (workspace, *workspace.parents) if (folder / ".git").exists())
    return next(found, workspace)


def _project_table(workspace: Path) -> dict[str, Any]:
    path = project_file(workspace)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="mend or remove the file") from error


def _mode(table: dict[str, Any]) -> str:
    from muse.decide.policy import parse_mode

    said = table.get("permission_mode", "")
    return parse_mode(said) if isinstance(said, str) and said else ""


def _converted(value: Any, kind: type[Any], workspace: Path) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{project_file(workspace)}: {error}") from error


def _tools() -> tuple[ToolSpec, ...]:
    """The tools that muse brings, without what a machine's sandbox adds to them."""
    from muse.effect.runner import Runner
    from muse.effect.tool import Children, builtin_tools
    from muse.effect.tool.masking import NO_SECRETS

    async def nothing(call: str, offset: int, limit: int) -> bytes | None:
        return None

    async def no_lane(agent: str, first: int, last: int, query: str, bytes_max: int) -> Lane:
        return Lane(())

    async def no_child(*_: object) -> Any:
        raise AssertionError("no tool runs here")

    def nobody() -> Any:
        raise AssertionError("no tool runs here")

    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), 0)
        found = builtin_tools(
            runner, read_output=nothing, read_lane=no_lane, background=nobody, environment={}, secrets=NO_SECRETS,
            children=Children(no_child, no_child),
        )  # fmt: skip
        return (*(tool.spec for tool in found.values()), *agent_tools())


# -- keeping one -------------------------------------------------------------------------------------------------------


def keep(path: Path, report: "Report", folder: Path, *, force: bool) -> Kept:
    """Keep the session in a file, of which this is the (good) report, as a fixture below `folder`. Raises UsageError
    where another one of its name is there and `force` is not given."""
    with closing(open_log(path)) as log:
        opened = next((event.body for event in events(log) if isinstance(event.body, SessionOpened)), None)
        if opened is None or not report.decisions or report.divergence is not None:
            raise UsageError("only a session that is derived again can be kept", hint="muse replay --verify SESSION")
        session, head = log.session, log.head()
    data = _exported(path)
    name = opened.name or session
    target = folder / name
    if not NAME.fullmatch(name):
        raise UsageError(f"a session named {name!r} makes no folder", hint="start it with another --name")
    manifest = _written(_manifest(session, head, opened, report))
    before = _texts(target)
    if before == (manifest, data):
        return Kept(target, "same")
    difference = tuple(
        difflib.unified_diff(before[0].splitlines(), manifest.splitlines(), "before", "now", lineterm="")
    )
    if before != ("", b"") and not force:
        shown = visible("\n".join(difference[2:])) or "the export holds other events"
        raise UsageError(
            f"{target} is there already, and would change:\n{shown}", hint="--force replaces it, once you know why"
        )
    target.mkdir(parents=True, exist_ok=True)
    (target / ATTRIBUTES).write_text(f"{EXPORT} -text\n", encoding="utf-8")
    (target / EXPORT).write_bytes(data)
    (target / MANIFEST).write_text(manifest, encoding="utf-8")
    return Kept(target, "made" if before == ("", b"") else "replaced", difference[2:])


def _exported(path: Path) -> bytes:
    """The session in a file as an export; of an export, its own bytes."""
    from muse.app.foreign import is_export
    from muse.log.export import write_export

    if is_export(path):
        return path.read_bytes()
    written = io.BytesIO()
    with closing(open_log(path)) as log:
        write_export(log, written.write)
    return written.getvalue()


def _texts(target: Path) -> tuple[str, bytes]:
    try:
        return (target / MANIFEST).read_text(encoding="utf-8"), (target / EXPORT).read_bytes()
    except FileNotFoundError:
        return "", b""


def _manifest(session_id: str, head: "Head", opened: SessionOpened, report: "Report") -> Manifest:
    settings = opened.settings
    session = Told(
        id=session_id, events=head.seq, head=head.hash.hex(), muse=opened.host.muse, rules=opened.rules,
        model=f"{settings.provider}/{settings.model}", mode=settings.mode, workspace=opened.workspace,
        decisions=sum(report.decisions.values()), requests=report.requests,
    )  # fmt: skip
    workspace = Path(opened.workspace)
    given = offer_of(workspace if workspace.is_dir() else Path.cwd())
    top = opened.git.root if opened.git is not None else opened.workspace
    names = tuple(one.path.removeprefix(f"{top}/") for one in opened.instructions)
    project = Given(
        instructions=names, mode=given.mode, allow=given.rules.allow, ask=given.rules.ask, deny=given.rules.deny
    )  # fmt: skip
    recorded = {spec.name: spec.description for spec in opened.tools}
    told = {
        spec.name: recorded[spec.name].removeprefix(spec.description)
        for spec in given.tools
        if recorded.get(spec.name, "").startswith(spec.description) and recorded[spec.name] != spec.description
    }
    tools = Tools(names=tuple(spec.name for spec in given.tools), told=told)
    return Manifest(format=FORMAT, checks=CHECKS, session=session, project=project, tools=tools)


def _written(manifest: Manifest) -> str:
    """The manifest as TOML: keys, strings, numbers and lists of strings, which is all it holds."""
    lines = [
        "# A muse session as a fixture: made by `muse replay --verify SESSION --golden DIR`, see docs/golden.md.",
        "# `checks` may be shortened; the rest is what the session and the project were when it was made.",
        f"format = {manifest.format}",
        f"checks = {_toml(list(manifest.checks))}",
    ]
    for name, part in (("session", manifest.session), ("project", manifest.project)):
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in msgspec.structs.asdict(part).items()]
    lines += ["", "[tools]", f"names = {_toml(list(manifest.tools.names))}"]
    if manifest.tools.told:
        lines += ["", "[tools.told]", *(f"{_toml(key)} = {_toml(value)}" for key, value in manifest.tools.told.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


# -- checking one ------------------------------------------------------------------------------------------------------


def read_fixture(folder: Path) -> Fixture:
    """The fixture in a folder. Raises UsageError for what is none."""
    path = folder / MANIFEST
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        manifest = msgspec.convert(table, Manifest)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is no manifest of a fixture: {error}", hint="docs/golden.md shows one") from error
    if manifest.format != FORMAT:
        raise UsageError(f"{path} has format {manifest.format}", hint="this muse is too old for it")
    return Fixture(folder.name, folder, manifest)


def workspace_of(fixture: Fixture, folder: Path) -> Path:
    """Where the session would work today: the folder of the repository around `folder` that lies in it as the session's
    lay in its own; `folder` itself where that is not known or not there."""
    with closing(open_log(fixture.folder / EXPORT)) as log:
        opened = next((event.body for event in events(log) if isinstance(event.body, SessionOpened)), None)
    if opened is None or opened.git is None or not Path(opened.workspace).is_relative_to(opened.git.root):
        return folder
    found = _top(folder) / Path(opened.workspace).relative_to(opened.git.root)
    return found if found.is_dir() else folder


def check(fixture: Fixture, what: Check, workspace: Path) -> str:
    """What is wrong with one aspect of a fixture, as lines for a person; "" if nothing is."""
    with closing(open_log(fixture.folder / EXPORT)) as log:
        return visible(_checked(log, fixture, what, workspace))


def _checked(log: "Log", fixture: Fixture, what: Check, workspace: Path) -> str:
    head, said = log.head(), fixture.manifest.session
    if (said.id, said.events, said.head) != (log.session, head.seq, head.hash.hex()):
        return f"{EXPORT} is not the session that {MANIFEST} names: make the fixture again"
    if what == "decisions":
        return _decisions(log, fixture.manifest)
    return _substituted(log, fixture.manifest, what, workspace)


def _decisions(log: "Log", manifest: Manifest) -> str:
    from muse.runtime.check.offline import offline
    from muse.runtime.check.walk import verify_story

    with offline():
        report = verify_story(log, rules())
    found = report.divergence
    if found is not None:
        lines = [f"diverges at #{found.seq} {found.agent} {found.type} ({found.kind}): {found.what}"]
        lines += [f"  expected  {found.expected}", f"  recorded  {found.recorded}"] if found.expected else []
        return "\n".join([*lines, *(f"    {line}" for line in found.difference)])
    derived = sum(report.decisions.values())
    if derived < manifest.session.decisions:
        left = "; ".join(f"{one.count} from #{one.first} on: {one.detail}" for one in report.left)
        return f"{derived} of {manifest.session.decisions} decisions were derived again ({left})"
    return ""


def _substituted(log: "Log", manifest: Manifest, what: Check, workspace: Path) -> str:
    from muse.runtime.check.substitute import Offer, differences

    given, tools = manifest.project, manifest.tools
    then = Offer(
        rules=PermissionRules(allow=given.allow, ask=given.ask, deny=given.deny),
        mode=given.mode,
        tools=tuple(ToolSpec(name=name, description="", schema="", recovery="opaque") for name in tools.names),
        told=tools.told,
    )
    found = differences(log, rules(), then, offer_of(workspace))
    return "\n".join(line for one in found if one.aspect == what for line in one.lines)
