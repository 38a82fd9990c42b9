"""The only place that picks concrete classes: which store, which model, which tools.

Front doors ask it for logs, for views' data and for a session to run; they never see what it is made of.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec

from muse.config import Config, Permissions, muse_home, provider_of
from muse.decide.context import RULES_VERSION, Builder, Rules
from muse.decide.policy import parse_mode, parse_rule
from muse.effect.protocol import Model, Tool, Workspace
from muse.errors import MissingKey, UsageError
from muse.event.content import PermissionRules, Settings, ToolSpec
from muse.event.envelope import Event, decode
from muse.event.kinds import COMMANDS
from muse.log.protocol import Log
from muse.runtime.checkpoint import fold
from muse.runtime.dispatch import Equipment
from muse.runtime.seal import seal
from muse.runtime.session import Running, Session, claim

SESSION_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SUFFIX = ".muse"
SCRIPTED = "scripted/"
APPROVAL_TIMEOUT = 300
"""Seconds that a request waits where the settings say nothing and no person sits at the terminal."""


# -- where sessions are ----------------------------------------------------------------------------------------------


def new_session_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxxxxxx`: sorts by time; the last eight characters alone name it."""
    tail = "".join(secrets.choice(SESSION_ALPHABET) for _ in range(8))
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{tail}"


def session_path(session: str) -> Path:
    """The file of a session that is about to be made."""
    return muse_home() / "sessions" / session[:4] / session[4:6] / session[6:8] / f"{session}{SUFFIX}"


def run_folder(session: str) -> Path:
    """Where the session's runner keeps its files."""
    return muse_home() / "run" / session


def session_files() -> list[Path]:
    """All session files under MUSE_HOME, newest first."""
    return sorted((muse_home() / "sessions").glob(f"*/*/*/*{SUFFIX}"), key=lambda path: path.name, reverse=True)


def find_session(text: str) -> Path:
    """The file that SESSION names: a path, `last`, an id, or a unique part of one. Raises `UsageError`."""
    if text.endswith(SUFFIX) or "/" in text:
        path = Path(text).expanduser()
        if not path.exists():
            raise UsageError(f"there is no file {text}", hint="muse ls lists the sessions")
        return path
    files = session_files()
    if text in ("", "last"):
        if not files:
            raise UsageError("there is no session yet", hint='start one: muse exec "…"')
        return files[0]
    exact = [path for path in files if path.stem == text]
    found = exact or [path for path in files if text in path.stem]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no session {text!r}", hint="muse ls lists the sessions")
    some = ", ".join(path.stem for path in found[:5])
    raise UsageError(f"{text!r} names {len(found)} sessions: {some}", hint="give more of the id")


def open_log(path: Path, *, read_only: bool = True, check: bool = True) -> Log:
    """The log in a file."""
    from muse.log.sqlite import SqliteLog

    return SqliteLog.open(path, commands=COMMANDS, read_only=read_only, check=check)


def create_log(session: str) -> Log:
    """A new, empty log for this session id."""
    from muse.log.sqlite import SqliteLog

    return SqliteLog.create(session_path(session), session, commands=COMMANDS)


def events(log: Log, after: int = 0, before: int | None = None) -> Iterator[Event]:
    """Decoded events of a log."""
    for stored in log.read(after=after, before=before):
        yield decode(stored.header, stored.body, stored.hidden)


# -- what a session runs with ----------------------------------------------------------------------------------------


def settings_of(config: Config, model: str = "", mode: str = "") -> Settings:
    """What `session.opened` records. Raises `ConfigError` for a model, mode or rule that cannot be used."""
    provider, dialect, rest = _provider(config, model or config.model)
    return Settings(
        provider=provider,
        dialect=dialect,
        model=rest,
        mode=parse_mode(mode or config.permission_mode),
        permissions=_rules(config.permissions),
        approval_timeout_seconds=APPROVAL_TIMEOUT if config.approval_timeout is None else config.approval_timeout,
        output_tokens_max=config.max_output_tokens,
        model_attempts_max=config.max_model_attempts,
        model_calls_max=config.max_model_calls,
        parallel_tools_max=config.max_parallel_tools,
        shell_timeout_seconds=config.shell_timeout,
        retry_base_ms=config.retry_base_ms,
    )


def _provider(config: Config, name: str) -> tuple[str, str, str]:
    if name.startswith(SCRIPTED):
        return "scripted", "scripted", str(Path(name.removeprefix(SCRIPTED)).expanduser().absolute())
    provider, found, rest = provider_of(config, name)
    return provider, found.dialect, rest


def _rules(permissions: Permissions) -> PermissionRules:
    for text in (*permissions.allow, *permissions.ask, *permissions.deny):
        parse_rule(text)
    return PermissionRules(allow=permissions.allow, ask=permissions.ask, deny=permissions.deny)


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
    from muse.effect.model.wire import Endpoint, make_model

    _, provider, _ = provider_of(config, f"{settings.provider}/{settings.model}")
    key = os.environ.get(provider.api_key_env, "") if provider.api_key_env else ""
    if provider.api_key_env and not key:
        raise MissingKey(
            f"no key for {settings.provider}: {provider.api_key_env} is not set",
            hint=f"export {provider.api_key_env}=…, or choose a local server: -m ollama/MODEL",
        )
    endpoint = Endpoint(name=settings.provider, dialect=settings.dialect, base_url=provider.base_url, api_key=key)
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
    ) -> None:
        from muse.effect.runner import Runner
        from muse.effect.tool import builtin_tools

        model = model_of(config, settings)
        found: dict[str, Tool] = {}
        runners: list[Runner] = []

        def specs(epoch: int) -> tuple[ToolSpec, ...]:
            runners.append(Runner(run_folder(log.session), epoch))
            found.update(builtin_tools(runners[0], extra_names=config.shell_environment))
            return tuple(tool.spec for tool in found.values())

        ownership = claim(log, settings, str(workspace), specs, name=name, fresh=fresh)
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
        self.running = Running(log, ownership, rules(), equipment, on_event, stay=stay, show_after=show_after)

    def _blob_log(self) -> Log:
        if self._blobs is None:
            self._blobs = open_log(path_of(self._log), read_only=False, check=False)
        return self._blobs

    def submit(self, body: msgspec.Struct, agent: str = "main", cause: int = 0) -> int:
        """Submit a command, through the log like anybody else, and return its seq."""
        seq = self._submitter.submit(seal(body, agent, cause))
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

    def close(self) -> None:
        """Close every handle; the log last, so that one file remains."""
        for log in (self._blobs, self._submitter):
            if log is not None:
                log.close()
        self.running.release()


def path_of(log: Log) -> Path:
    """The file of a log that is kept in one."""
    path = getattr(log, "path", None)
    assert isinstance(path, Path), "this log is not kept in a file"
    return path


def state_of(log: Log) -> Session:
    """The state after the last event."""
    return fold(log)
