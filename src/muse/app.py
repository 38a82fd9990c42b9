"""The only place that picks concrete classes: which store, which model, which tools.

Front doors ask it for logs, for views' data and for a session to run; they never see what it is made of.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from muse import __version__
from muse.config import BUILT_IN, Config, Loaded, Permissions, load, muse_home, provider_of
from muse.decide.context import RULES_VERSION, Builder, Rules
from muse.decide.policy import parse_mode, parse_rule
from muse.effect.protocol import Model, Tool, Workspace
from muse.errors import ConfigError, Conflict, MissingKey, MuseError, NewerLog, NotALog, StoreUnavailable, UsageError
from muse.event.content import Origin, PermissionRules, Settings, ToolSpec
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS, NoteAdded
from muse.log.catalog import Catalog
from muse.log.catalog import Entry as Entry
from muse.log.protocol import Log as Log
from muse.runtime import host, reading
from muse.runtime.checkpoint import fold
from muse.runtime.dispatch import Equipment
from muse.runtime.outputs import read_output
from muse.runtime.reading import Position as Position
from muse.runtime.reading import Reading as Reading
from muse.runtime.seal import seal
from muse.runtime.session import Running, claim
from muse.runtime.session import Session as Session

if TYPE_CHECKING:
    from muse.effect.tool.masking import KnownSecrets
    from muse.effect.tool.preview import Preview
    from muse.runtime.reading import Report

SESSION_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SUFFIX = ".muse"
SCRIPTED = "scripted/"
LIMITS = {
    "approval_timeout": "approval_timeout_seconds",
    "max_output_tokens": "output_tokens_max",
    "max_model_attempts": "model_attempts_max",
    "max_model_calls": "model_calls_max",
    "max_parallel_tools": "parallel_tools_max",
    "shell_timeout": "shell_timeout_seconds",
    "retry_base_ms": "retry_base_ms",
}
"""Key of the settings file → field of the settings that a session records."""
SUPERVISOR = b"/effect/runner/supervisor.py"
"""What the command line of a runner, and of each keeper below it, holds."""
TRIED_MAX = 200
"""Characters that the log keeps of a command that an agent's process tried and was refused."""
APPROVAL_TIMEOUT = 300
"""Seconds that a request waits where the settings say nothing and no person sits at the terminal."""


# -- where sessions are ----------------------------------------------------------------------------------------------


def new_session_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxxxxxx`: sorts by time; the last eight characters alone name it. The first two of them are
    the milliseconds, so that sessions made in one second sort too; the others are drawn."""
    now = datetime.now(UTC)
    high, low = divmod(now.microsecond // 1000, len(SESSION_ALPHABET))
    tail = SESSION_ALPHABET[high] + SESSION_ALPHABET[low] + "".join(secrets.choice(SESSION_ALPHABET) for _ in range(6))
    return f"{now:%Y%m%d-%H%M%S}-{tail}"


def session_path(session: str) -> Path:
    """The file of a session that is about to be made."""
    return muse_home() / "sessions" / session[:4] / session[4:6] / session[6:8] / f"{session}{SUFFIX}"


def run_folder(session: str) -> Path:
    """Where the session's runner keeps its files."""
    return muse_home() / "run" / session


def session_files() -> list[Path]:
    """All session files under MUSE_HOME, newest first."""
    return sorted((muse_home() / "sessions").glob(f"*/*/*/*{SUFFIX}"), key=lambda path: path.name, reverse=True)


def open_log(path: Path, *, read_only: bool = True, check: bool = True) -> Log:
    """The log in a file. Raises UsageError for a file of another kind; one that is named like a log and is none (any
    more) is damage."""
    from muse.log.sqlite import SqliteLog

    try:
        return SqliteLog.open(path, commands=COMMANDS, read_only=read_only, check=check)
    except NotALog as error:
        if path.suffix == SUFFIX:
            raise
        raise UsageError(str(error), hint="give a session, its file, or an export (.jsonl)") from error


def read_session(path: Path) -> Reading:
    """A session open for reading only, its chain of stored roots followed; what is before damage stays readable."""
    return Reading.open(lambda check: open_log(path, check=check))


def verify_file(
    path: Path, head: tuple[int, bytes] | None = None, progress: Callable[[int], None] | None = None
) -> "Report":
    """The verdict on a session's file or an export."""
    return reading.verify_file(path, lambda file: open_log(file, check=False), rules(), head=head, progress=progress)


def catalog() -> Catalog:
    """What listings say about sessions, with its cache."""
    return Catalog(muse_home() / "cache" / "catalog.json", lambda file: open_log(file, check=False))


def create_log(session: str) -> Log:
    """A new, empty log for this session id. Raises UsageError where the place for logs cannot be made or written."""
    from muse.log.sqlite import SqliteLog

    try:
        return SqliteLog.create(session_path(session), session, commands=COMMANDS)
    except StoreUnavailable as error:
        cause = error.__cause__
        if cause is not None and (not isinstance(cause, OSError) or cause.errno in (errno.ENOSPC, errno.EDQUOT)):
            raise
        raise UsageError(
            f"sessions cannot be kept in {muse_home()}: {error}",
            hint="set MUSE_HOME to a folder of yours on a local disk",
        ) from error


def events(log: Log, after: int = 0, before: int | None = None) -> Iterator[Event]:
    """Decoded events of a log."""
    for stored in log.read(after=after, before=before):
        yield decode(stored.header, stored.body, stored.hidden)


def preview(tool: str, args: str, workspace: str) -> "Preview | None":
    """What a call that edits or writes a file would change in it as it is now; None for any other call."""
    from muse.decide.approval import parsed
    from muse.effect.tool.preview import preview as look

    return look(tool, parsed(args), Path(workspace))


def sqlite_version() -> str:
    """The version of the SQLite that keeps the logs."""
    import apsw

    return apsw.sqlite_lib_version()


def file_system(folder: Path) -> tuple[str, bool]:
    """The kernel's name of the file system of a folder ("" where unknown), and whether a log is safe on it."""
    from muse.log.place import filesystem_type, is_remote

    kind = filesystem_type(folder)
    return kind or "", kind is None or not is_remote(kind)


def event_at(log: Log, seq: int) -> Event | None:
    """The event with this seq, or None."""
    return next(events(log, seq - 1, seq + 1), None)


# -- what other processes say to a session ---------------------------------------------------------------------------


def origin(client: str) -> Origin:
    """Where a command of this process comes from. Raises UsageError below a runner: a command that an agent started
    may not speak for a person."""
    found = host.this_origin(client)
    if _is_below_runner(found):
        raise UsageError(
            "this process was started by an agent, and an agent may not approve, steer or cancel",
            hint="do it from a terminal of your own",
        )
    return found


def refuse_agents(log: Log, client: str, tried: str) -> None:
    """As `origin`, and the log keeps a note of what was tried, with where it came from. A note that cannot be written
    changes nothing about the refusal."""
    found = host.this_origin(client)
    if not _is_below_runner(found):
        return
    said = tried if len(tried) <= TRIED_MAX else f"{tried[:TRIED_MAX]} …"
    with suppress(MuseError):
        submit(log, NoteAdded(text=f"refused: a command run by the agent tried: {said}", origin=found), "main")
    origin(client)


def _is_below_runner(found: Origin) -> bool:
    for pid in found.ancestry:
        with suppress(OSError):
            if SUPERVISOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def known_secrets(config: Config | None = None) -> "KnownSecrets":
    """What may stand in no log and go to no model: the values of all variables that are named like secrets or hold a
    provider's key, whatever their name. Without `config` the settings of the current folder name the providers."""
    from muse.effect.tool.masking import KnownSecrets

    if config is None:
        try:
            config = load(Path.cwd())
        except (ConfigError, OSError):  # words are said with settings that are broken, too
            config = Config()
    names = {provider.api_key_env for provider in (*BUILT_IN.values(), *config.providers.values())}
    return KnownSecrets.of_environment(os.environ, names)


def holds_secret(text: str) -> bool:
    """Whether a known secret stands in `text`."""
    return known_secrets().is_in(text.encode("utf-8", "surrogateescape"))


def owner_pid(path: Path) -> int:
    """The pid of the living process that owns this session, 0 if there is none.

    A lock is looked at by taking it for a moment, so that is done only where a living process says to hold it.
    """
    from muse.log import lock

    place = path.with_suffix(".lock")
    owner = lock.read_owner(place)
    if owner is None or (owner.boot_id and owner.boot_id != lock.boot_id()):
        return 0
    if owner.started and owner.started != lock.start_time(owner.pid):
        return 0
    try:
        return owner.pid if lock.is_held(place) else 0
    except OSError:
        return 0


def submit(log: Log, body: msgspec.Struct, agent: str, *, cause: int = 0, client_id: str = "") -> int:
    """Submit a command to a session, whoever runs it, and return its seq once it is durable. Known secrets in its words
    become placeholders.

    With `client_id` (any text) the same command from any process is one event: its seq is returned again. Raises
    UsageError when that id stands for something else.
    """
    body = known_secrets().masked(body)
    event_id = _event_id(client_id) if client_id else ""
    draft = seal(body, agent, cause, event_id=event_id)
    if client_id and (seq := _said_before(log, draft.id, body, agent)):
        return seq
    try:
        return log.submit(draft)
    except Conflict:
        if seq := _said_before(log, draft.id, body, agent):
            return seq
        raise


def command_with(log: Log, client_id: str) -> Event | None:
    """The command that was submitted with this id of a client's, or None."""
    event_id = _event_id(client_id)
    seq = log.find([event_id]).get(event_id, 0)
    return event_at(log, seq) if seq else None


def _event_id(client_id: str) -> str:
    return hashlib.sha256(client_id.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _said_before(log: Log, event_id: str, body: msgspec.Struct, agent: str) -> int:
    """The seq of the command with this id, 0 if there is none. Who said it does not matter; what, does."""
    seq = log.find([event_id]).get(event_id, 0)
    event = event_at(log, seq) if seq else None
    if event is None:
        return 0
    if type(event.body) is not type(body) or event.agent != agent or _plain(event.body) != _plain(body):
        raise UsageError(f"this id was used for another command (#{seq})", hint="use a new id for a new command")
    return seq


def _plain(body: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(body, origin=Origin())


# -- what a session runs with ----------------------------------------------------------------------------------------


def settings_of(config: Config, model: str = "", mode: str = "") -> Settings:
    """What `session.opened` records of a new session. Raises `ConfigError` for a model, mode or rule that cannot be
    used."""
    provider, dialect, rest = _provider(config, model or config.model)
    return Settings(
        provider=provider,
        dialect=dialect,
        model=rest,
        mode=parse_mode(mode or config.permission_mode),
        permissions=_rules(config.permissions),
        **_limits(config),
    )


def _limits(config: Config) -> dict[str, int]:
    found = {name: getattr(config, key) for key, name in LIMITS.items()}
    if found["approval_timeout_seconds"] is None:
        found["approval_timeout_seconds"] = APPROVAL_TIMEOUT
    return found


def _provider(config: Config, name: str) -> tuple[str, str, str]:
    if name.startswith(SCRIPTED):
        return "scripted", "scripted", str(Path(name.removeprefix(SCRIPTED)).expanduser().absolute())
    provider, found, rest = provider_of(config, name)
    return provider, found.dialect, rest


def settings_again(state: Session, loaded: Loaded, model: str = "", mode: str = "") -> Settings:
    """What `session.opened` records when a session goes on: model, mode, rules and limits of its log; of the settings
    only what tightens (ask and deny rules), how long an approval waits, and what `-c` names. Raises `ConfigError`."""
    assert state.settings is not None
    config, given = loaded.config, loaded.given
    model = model or (config.model if "model" in given else "")
    mode = mode or (config.permission_mode if "permission_mode" in given else "")
    new = _rules(config.permissions)
    rules = PermissionRules(
        allow=_joined(state.allow, new.allow if "permissions" in given else ()),
        ask=_joined(state.ask, new.ask),
        deny=_joined(state.deny, new.deny),
    )
    limits = _limits(config)
    changes: dict[str, object] = {name: limits[name] for key, name in LIMITS.items() if key in given}
    changes |= {"mode": parse_mode(mode or state.mode), "permissions": rules}
    changes["approval_timeout_seconds"] = limits["approval_timeout_seconds"]
    if model:
        provider, dialect, rest = _provider(config, model)
        changes |= {"provider": provider, "dialect": dialect, "model": rest}
    settings: Settings = msgspec.structs.replace(state.settings, **changes)
    return settings


def with_rules(settings: Settings, allow: tuple[str, ...], deny: tuple[str, ...]) -> Settings:
    """The settings with more rules. Raises `ConfigError` for one that cannot be read."""
    more = _rules(Permissions(allow=allow, deny=deny))
    old = settings.permissions
    joined = PermissionRules(allow=_joined(old.allow, more.allow), ask=old.ask, deny=_joined(old.deny, more.deny))
    return msgspec.structs.replace(settings, permissions=joined)


def _joined(old: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *more)))


def _rules(permissions: Permissions) -> PermissionRules:
    for text in (*permissions.allow, *permissions.ask, *permissions.deny):
        try:
            parse_rule(text)
        except ConfigError as error:
            hint = error.hint or "docs/permissions.md shows what a rule looks like"
            raise ConfigError(f"permissions: {text!r} is no rule: {error}", hint=hint) from error
    return PermissionRules(allow=permissions.allow, ask=permissions.ask, deny=permissions.deny)


def require_continuable(log: Log, state: Session) -> None:
    """Raises NewerLog when the log holds events that this version does not know, and UsageError when text that the
    agents went by was taken out of it: it can be read, not continued."""
    if state.redacted:
        raise UsageError(
            f"this session cannot go on: what its agents went by was redacted: {_some(state.redacted)}",
            hint="read it (muse replay, muse log, muse show), hand it on (muse export), or start a new session",
        )
    if not state.unknown:
        return
    opened = event_at(log, state.opened)
    found = getattr(opened.body, "host", None) if opened else None
    by = f"muse {found.muse}" if found is not None and found.muse else "another version of muse"
    some = _some(state.unknown)
    raise NewerLog(
        f"this session cannot go on here: it holds what muse {__version__} does not know ({some}), written by {by}",
        hint="go on with that version, or read it: muse replay, muse log, muse export all work",
    )


def _some(events: list[str]) -> str:
    return ", ".join(events[:3]) + (f" and {len(events) - 3} more" if len(events) > 3 else "")


def rules() -> Rules:
    """The rules of this build, with every dialect's builder."""
    from muse.effect.model import anthropic, openai, scripted

    return Rules(
        version=RULES_VERSION,
        builders={
            "anthropic": Builder(anthropic.BUILDER, anthropic.build),
            "openai": Builder(openai.BUILDER, openai.build),
            "scripted": Builder(scripted.BUILDER, scripted.build),
        },
    )


def model_of(config: Config, settings: Settings) -> Model:
    """The client for the settings' provider. Raises `MissingKey` naming the variable to set."""
    if settings.dialect == "scripted":
        from muse.effect.model.scripted import ScriptedModel, load_script

        return ScriptedModel(load_script(Path(settings.model)))
    from muse.effect.model.wire import Endpoint, Timeouts, make_model

    _, provider, _ = provider_of(config, f"{settings.provider}/{settings.model}")
    key = os.environ.get(provider.api_key_env, "") if provider.api_key_env else ""
    if provider.api_key_env and not key:
        raise MissingKey(
            f"no key for {settings.provider}: {provider.api_key_env} is not set",
            hint=f"export {provider.api_key_env}=…, or choose a local server: -m ollama/MODEL",
        )
    endpoint = Endpoint(
        name=settings.provider, dialect=settings.dialect, base_url=provider.base_url, api_key=key,
        timeouts=Timeouts(read_seconds=provider.timeout),
    )  # fmt: skip
    return make_model(endpoint)


class Owned:
    """A session that this process owns: what `exec`, `resume` and the chat drive."""

    def __init__(
        self,
        log: Log,
        config: Config,
        settings: Settings,
        workspace: Path,
        on_event: Callable[[Event], None],
        on_signal: Callable[[str, str], None],
        *,
        fresh: bool,
        name: str = "",
        stay: bool = False,
        show_after: int | None = None,
        model: Model | None = None,
        on_fatal: Callable[[MuseError], None] | None = None,
    ) -> None:
        """`on_fatal` is called when the session cannot go on (fenced, full disk); if it returns, what runs is
        cancelled, so a front door that wants commands to go on ends the process there (`leave`, then exit)."""
        from muse.effect.runner import Runner
        from muse.effect.tool import builtin_tools

        model = model or model_of(config, settings)
        self._secrets = known_secrets(config)
        found: dict[str, Tool] = {}
        runners: list[Runner] = []

        def specs(epoch: int) -> tuple[ToolSpec, ...]:
            runners.append(Runner(run_folder(log.session), epoch))
            environment = os.environ | {"MUSE_SESSION": log.session}
            found.update(
                builtin_tools(
                    runners[0],
                    read_output=self._read_output,
                    environment=environment,
                    extra_names=(*config.shell_environment, "MUSE_SESSION"),
                    secrets=self._secrets,
                )
            )
            return tuple(tool.spec for tool in found.values())

        ownership = claim(log, settings, str(workspace), specs, name=name, fresh=fresh, secrets=self._secrets)
        self._runner = runners[0]
        self._submitter = open_log(path_of(log), read_only=False, check=False)
        self._blobs: Log | None = None
        equipment = Equipment(
            model=model,
            tools=found,
            workspace=Workspace(workspace),
            log=log,
            blobs=self._blob_log,
            settled=self._runner.discard,
            on_signal=on_signal,
        )
        self._log = log
        self.running = Running(
            log, ownership, rules(), equipment, on_event, stay=stay, show_after=show_after, on_fatal=on_fatal
        )

    async def _read_output(self, call: str, offset: int, limit: int) -> bytes | None:
        def read() -> bytes | None:
            log = open_log(path_of(self._log), check=False)
            try:
                return read_output(log, call, offset, limit)
            finally:
                log.close()

        return await anyio.to_thread.run_sync(read)

    def _blob_log(self) -> Log:
        if self._blobs is None:
            self._blobs = open_log(path_of(self._log), read_only=False, check=False)
        return self._blobs

    def event(self, seq: int) -> Event | None:
        """An event of the log."""
        return event_at(self._submitter, seq)

    def submit(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> int:
        """Submit a command, through the log like anybody else and without known secrets, and return its seq."""
        seq = self._submitter.submit(seal(self._secrets.masked(body), agent, cause))
        self.running.poke()
        return seq

    async def run(self) -> Session:
        """Go on until the session closes, then let go of runner and log."""
        try:
            return await self.running.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self._runner.aclose()
            self.close()

    def leave(self) -> None:
        """Close the log at once, cancelling nothing: for a process that ends right after. Commands go on under the
        runner, and the next owner re-attaches to them."""
        self.close()

    def close(self) -> None:
        """Close every handle; the log last, so that one file remains."""
        for log in (self._blobs, self._submitter):
            if log is not None:
                log.close()
        self.running.release()


def discard_empty(log: Log) -> None:
    """Close a log, and take its file away when it holds no event: a session that never began. Where another process
    owns it, or the lock cannot be taken, it stays."""
    from muse.log.lock import acquire

    path = path_of(log)
    try:
        lock = acquire(path.with_suffix(".lock"))
    except MuseError:
        log.close()
        return
    try:
        empty = log.head().seq == 0
    except MuseError:
        empty = False
    try:
        log.close()
        if empty:  # the log first: as long as it is there, its lock file is, so that two never hold two locks for it
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
    finally:
        lock.release()


def path_of(log: Log) -> Path:
    """The file of a log that is kept in one."""
    path = getattr(log, "path", None)
    assert isinstance(path, Path), "this log is not kept in a file"
    return path


def state_of(log: Log) -> Session:
    """The state after the last event."""
    return fold(log)
