"""Settings, read once at start: defaults, then the user's file, the project's file, the environment, `-c`, flags.

    $XDG_CONFIG_HOME/muse/config.toml     (~/.config/muse/config.toml)
    <workspace>/.muse/config.toml

Later ones win key by key; permission rules of both files add up. A project's file came with the repository and is
somebody else's text: unless the user's file lists the folder in `trusted`, it may only tighten. docs/configuration.md
says which keys that leaves, and a test holds the two together. This module must not know what a rule means.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from muse import budget
from muse.errors import ConfigError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=95)]
Amount = int | float | str
Dialect = Literal["anthropic", "openai"]
NoticeKind = Literal["finished", "failed", "approval", "question", "limit"]


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.NAME]`: the wire dialect, where it is reached, the variable that holds the key ("" for none), and for
    how many seconds nothing may come before an attempt counts as failed. `chosen_only`: its models are asked when a
    person chose one, and no agent can be spawned with one."""

    dialect: Dialect
    base_url: str
    api_key_env: str = ""
    timeout: Positive = 300
    chosen_only: bool = False


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[permissions]`: rules such as `shell(git log *)`; deny over ask over allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Agents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents]`: how many agents besides `main` work at once, how many levels there may be below it (0: it spawns
    none), and how many agents a session may have in all."""

    parallel: Positive = 8
    depth: Count = 3
    total: Positive = 1000


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Amounts of a budget as written; 0: no limit. `muse.budget` reads them."""

    tokens: Amount = 0
    cost: Amount = 0
    turns: Amount = 0
    calls: Amount = 0
    time: Amount = 0


class Budget(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[budget]`: of the session; `[budget.agent]`: of each agent; `[budget.tree]`: of each with all below it."""

    agent: Limits = Limits()
    tree: Limits = Limits()


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models."PROVIDER/NAME"]`: tokens that it takes in one request, and US dollars for a million tokens (None: as
    input)."""

    context: Count = 0
    input: Amount = 0
    output: Amount = 0
    cache_read: Amount | None = None
    cache_write: Amount | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Times in seconds (`_ms`: milliseconds), sizes in tokens. `approval_timeout` None: 300 where no
    person sits at the terminal, no limit where one does. `sandbox` "": as far as the machine can. `notify` is the
    command that is run for what `notify_on` names; `bell`: the terminal rings for it."""

    model: str = ""
    permission_mode: str = "default"
    approval_timeout: Count | None = None
    max_output_tokens: Positive = 8192
    max_model_attempts: Positive = 6
    max_model_calls: Count = 1000
    max_parallel_tools: Positive = 8
    shell_timeout: Count = 120
    retry_base_ms: Positive = 1000
    snapshots: bool = True
    snapshot_timeout: Positive = 20
    shell_environment: tuple[str, ...] = ()
    sandbox: str = ""
    sandbox_writable: tuple[str, ...] = ()
    network: bool = True
    trusted: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    notify_on: tuple[NoticeKind, ...] = get_args(NoticeKind)
    bell: bool = True
    park_after: Positive = 60
    compact_at: Percent = 80
    fallback_models: tuple[str, ...] = ()
    agents: Agents = Agents()
    budget: Budget = Budget()
    models: dict[str, KnownModel] = {}
    providers: dict[str, Provider] = {}
    permissions: Permissions = Permissions()


class Loaded(msgspec.Struct, frozen=True):
    """The settings, the files that were read, what a project's file said that is not followed, and the (top) keys
    that `-c` named."""

    config: Config
    files: tuple[Path, ...] = ()
    ignored: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def notice(self) -> str:
        """One line for a person about what is not followed, "" if nothing."""
        if not self.ignored:
            return ""
        return f"{self.files[-1]} is not trusted, so it may only tighten; not followed: {', '.join(self.ignored)}"


BUILT_IN: Final[dict[str, Provider]] = {
    "anthropic": Provider(dialect="anthropic", base_url="https://api.anthropic.com", api_key_env="ANTHROPIC_API_KEY"),
    "openai": Provider(dialect="openai", base_url="https://api.openai.com/v1", api_key_env="OPENAI_API_KEY"),
    "openrouter": Provider(dialect="openai", base_url="https://openrouter.ai/api/v1", api_key_env="OPENROUTER_API_KEY"),
    "ollama": Provider(dialect="openai", base_url="http://127.0.0.1:11434/v1"),
    "llamacpp": Provider(dialect="openai", base_url="http://127.0.0.1:8080/v1"),
    "vllm": Provider(dialect="openai", base_url="http://127.0.0.1:8000/v1"),
    "lmstudio": Provider(dialect="openai", base_url="http://127.0.0.1:1234/v1"),
}
"""Providers that need no settings; `[providers.NAME]` adds to them or replaces one."""

_SANDBOXES: Final = {"off": 0, "": 1, "workspacewrite": 1, "readonly": 2}
_STRICTNESS: Final = {"plan": 0, "default": 1, "acceptedits": 2, "yolo": 3}
_LIMITS: Final = ("max_model_calls", "max_model_attempts", "max_output_tokens", "max_parallel_tools")
_UNLIMITED: Final = 2**31
_TYPES: Final = {
    "int": "a number", "str": "a text", "array": "a list", "object": "a table", "bool": "true or false",
    "float": "a number with a fraction", "null": "nothing", "datetime": "a date", "date": "a date", "time": "a time",
}  # fmt: skip
_wrong_type: Final = re.compile(r"Expected `(.+)`, got `(.+)`")
_out_of_range: Final = re.compile(r"Expected `int` (>=|<=) (-?[0-9]+)")
_no_choice: Final = re.compile(r"Invalid enum value (.+)")
OWN_TOKENS: Final = 2_700
"""What a request holds before anybody has said a word: tools and system prompt, at four bytes a token."""
CONTEXT_MIN: Final = 8_000
"""The smallest window: half of it is room for a conversation when the answer has its own."""
COMPACT_AT_MIN: Final = 5
"""Of the smallest windows that are known, 128,000 tokens, this is still twice what muse itself takes."""
FILE_BYTES_MAX: Final = 1 << 20
"""Bytes that a file of settings may have."""


def user_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the user's settings are read from."""
    base = environment.get("XDG_CONFIG_HOME") or str(_home(environment) / ".config")
    return Path(base) / "muse" / "config.toml"


def project_file(workspace: Path) -> Path:
    """Where the project's settings are read from."""
    return workspace / ".muse" / "config.toml"


def load(workspace: Path, pairs: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ) -> Config:
    """The settings for this workspace; `pairs` are `-c key=value`. Raises `ConfigError` naming the file and key."""
    return read(workspace, pairs, environment).config


def read(workspace: Path, pairs: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ) -> Loaded:
    """As `load`, with the files that were read and what was not followed."""
    user_path, project_path = user_file(environment), project_file(workspace)
    user, project = _own_names(_table(user_path), str(user_path)), _own_names(_table(project_path), str(project_path))
    files = tuple(path for path, table in ((user_path, user), (project_path, project)) if table is not None)
    mine = _checked(user or {}, str(user_path))
    _checked(project or {}, str(project_path))
    _refuse_key_theft(project or {}, project_path, user_path)
    ignored: list[str] = []
    followed = dict(project or {})
    if followed.pop("trusted", None) is not None:
        ignored.append("trusted")
    if not _is_trusted(workspace, mine.trusted, environment):
        followed = _tightening(followed, mine, ignored)
    merged = _merged(user or {}, followed)
    for key, name in (("model", "MUSE_MODEL"), ("sandbox", "MUSE_SANDBOX")):
        if value := environment.get(name):
            merged[key] = value
    given: dict[str, Any] = {}
    for pair in pairs:
        _set(given, pair)
    given = _completed(_own_names(given, "-c") or {}, merged)
    _checked(given, "-c")
    return Loaded(_checked(_merged(merged, given), "the settings"), files, tuple(ignored), tuple(given))


def provider_of(config: Config, model: str) -> tuple[str, Provider, str]:
    """(provider name, provider, model name) of `provider/model`. Raises `ConfigError` that lists what there is."""
    name, slash, rest = model.partition("/")
    known = BUILT_IN | config.providers
    if not slash or not rest or name not in known:
        raise ConfigError(
            f"no provider for the model {model!r}" if model else "no model is chosen",
            hint=f"give -m PROVIDER/MODEL ({', '.join(sorted(known))}), or set model in {user_file()}",
        )
    return name, known[name], rest


def muse_home(environment: Mapping[str, str] = os.environ) -> Path:
    """`$MUSE_HOME`, else `$XDG_DATA_HOME/muse`, else `~/.local/share/muse`."""
    if home := environment.get("MUSE_HOME"):
        return Path(home).expanduser().absolute()
    base = environment.get("XDG_DATA_HOME") or str(_home(environment) / ".local" / "share")
    return Path(base) / "muse"


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment["HOME"]) if environment.get("HOME") else Path("~").expanduser()


# -- one file ----------------------------------------------------------------------------------------------------------


def _table(path: Path) -> dict[str, Any] | None:
    """The file's table, None where there is no file. A file that cannot be read is an error, never an empty one."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path} is no file", hint="a pipe or a device cannot hold settings")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is too large for settings", hint="mend or remove the file")
        return tomllib.loads(data.decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="mend or remove the file") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="see its mode and owner") from error


def _checked(table: Mapping[str, Any], where: str) -> Config:
    """The table as settings. Raises ConfigError that names `where` and the key."""
    _refuse_unknown(table, Config, "", where)
    permissions, providers = table.get("permissions"), table.get("providers")
    if isinstance(permissions, dict):
        _refuse_unknown(permissions, Permissions, "permissions.", where)
    for name, one in providers.items() if isinstance(providers, dict) else ():
        if isinstance(one, dict):
            _refuse_unknown(one, Provider, f"providers.{name}.", where)
    if isinstance(agents := table.get("agents"), dict):
        _refuse_unknown(agents, Agents, "agents.", where)
    models = table.get("models")
    for name, one in models.items() if isinstance(models, dict) else ():
        if isinstance(one, dict):
            _refuse_unknown(one, KnownModel, f'models."{name}".', where)
    for prefix, amounts in _budgets(table):
        _refuse_unknown(amounts, Limits if prefix.count(".") > 1 else Budget, prefix, where)
    try:
        found = msgspec.convert(table, Config)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        key = path.strip("`").lstrip(".").replace("[...]", " (an item)")
        if missing := _missing(what):
            raise ConfigError(f"{where}: {_dotted(key, providers)} lacks {missing}") from error
        raise ConfigError(
            f"{where}: {_dotted(key, providers)} {_in_words(what, key)}",
            hint="docs/configuration.md lists every key with its type",
        ) from error
    _require_amounts(found, where)
    _require_room(found, where)
    return found


def _budgets(table: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables of budgets that there are, with the start of their keys' names."""
    whole = table.get("budget")
    if not isinstance(whole, dict):
        return []
    below = [(f"budget.{scope}.", whole[scope]) for scope in ("agent", "tree") if isinstance(whole.get(scope), dict)]
    return [("budget.", whole), *below]


def _own_names(table: dict[str, Any] | None, where: str) -> dict[str, Any] | None:
    """The table with the budgets that go by another name under their own."""
    whole = (table or {}).get("budget")
    if table is None or not isinstance(whole, dict):
        return table
    try:
        below = {name: budget.in_own_names(one) for name, one in whole.items() if isinstance(one, dict)}
        return table | {"budget": budget.in_own_names(whole) | below}
    except ConfigError as error:
        raise ConfigError(f"{where}: budget: {error}", hint=error.hint) from error


def _require_amounts(config: Config, where: str) -> None:
    """Raises `ConfigError` for an amount or a price that says none."""
    scopes = (("budget.", config.budget), ("budget.agent.", config.budget.agent), ("budget.tree.", config.budget.tree))
    given = [(f"{start}{key}", key, getattr(one, key)) for start, one in scopes for key in budget.WHAT]
    for name, known in config.models.items():
        for key in ("input", "output", "cache_read", "cache_write"):
            given.append((f'models."{name}".{key}', "", getattr(known, key) or 0))
    for name, key, value in given:
        try:
            budget.amount(key, value) if key else budget.price(value)
        except ConfigError as error:
            raise ConfigError(f"{where}: {name}: {error}", hint=error.hint) from error


def _require_room(config: Config, where: str) -> None:
    """Raises `ConfigError` for a window, or a share of one, in which no conversation has room: it would be shortened
    without end, or never."""
    hint = f"muse itself, its tools and instructions, takes about {OWN_TOKENS:,} tokens of each request"
    for name, known in config.models.items():
        if 0 < known.context < CONTEXT_MIN:
            raise ConfigError(
                f'{where}: models."{name}".context is {known.context:,} tokens: at least {CONTEXT_MIN:,} are needed',
                hint=f"{hint}; leave it out where it is not known",
            )
        room = known.context * config.compact_at // 100
        if 0 < room < CONTEXT_MIN // 2:
            raise ConfigError(
                f'{where}: compact_at {config.compact_at} leaves {room:,} tokens of the context of models."{name}"',
                hint=f"{hint}; 80 is usual, 0 shortens nothing",
            )
    if 0 < config.compact_at < COMPACT_AT_MIN:
        raise ConfigError(
            f"{where}: compact_at wants 0 (shorten nothing), or {COMPACT_AT_MIN} and more", hint=f"{hint}; 80 is usual"
        )


def _missing(what: str) -> str:
    start = "Object missing required field `"
    return what.removeprefix(start).rstrip("`") if what.startswith(start) else ""


def _in_words(what: str, key: str) -> str:
    """msgspec's message in the words of docs/configuration.md."""
    if found := _wrong_type.fullmatch(what):
        kinds = [_TYPES.get(name, name) for name in found[1].split(" | ") if name != "null"]
        return f"wants {' or '.join(kinds)}, not {_TYPES.get(found[2], found[2])}"
    if found := _out_of_range.fullmatch(what):
        bound = "at least" if found[1] == ">=" else "at most"
        return f"wants a number of {bound} {found[2]}"
    if found := _no_choice.fullmatch(what):
        choices = get_args(NoticeKind if key.startswith("notify_on") else Dialect)
        return f"wants one of {', '.join(choices)}, not {found[1]}"
    return f"is wrong: {what}"


def _dotted(key: str, providers: object) -> str:
    """msgspec writes a table's key as an item; with one provider it can be named."""
    if isinstance(providers, dict) and len(providers) == 1 and key.startswith("providers (an item)"):
        return key.replace("providers (an item)", f"providers.{next(iter(providers))}")
    return key


def _refuse_unknown(table: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str, where: str) -> None:
    known = kind.__struct_fields__
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
            hint = f"did you mean {prefix}{close[0]}?" if close else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}: unknown key {prefix}{key}", hint=hint)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: tables merge, permission lists add up, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if key == "permissions" and isinstance(old, dict):
            result[key] = {name: [*old.get(name, ()), *value.get(name, ())] for name in sorted({**old, **value})}
        elif isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        else:
            result[key] = value
    return result


def _completed(given: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """What `-c` says of a provider changes the one that there is; the rest of that one is added."""
    providers = given.get("providers")
    if not isinstance(providers, dict):
        return given
    known = {name: msgspec.to_builtins(one) for name, one in BUILT_IN.items()} | base.get("providers", {})
    whole = {name: known.get(name, {}) | one if isinstance(one, dict) else one for name, one in providers.items()}
    return given | {"providers": whole}


def _set(table: dict[str, Any], pair: str) -> None:
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"-c {pair!r} is no key=value", hint="for example: -c approval_timeout=60")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *tables, last = _steps(key.strip())
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"-c {pair!r}: {name} is no table", hint="docs/configuration.md lists every key")
    table[last] = value


def _steps(key: str) -> list[str]:
    """The names that a key leads through: as in a settings file, where quotes hold a name with dots together."""
    found: list[str] = []
    with suppress(tomllib.TOMLDecodeError):
        value: object = tomllib.loads(f"{key} = 0") if "\n" not in key else 0
        while isinstance(value, dict) and len(value) == 1:
            ((name, value),) = value.items()
            found.append(name)
    return found or key.split(".")


# -- a project's file --------------------------------------------------------------------------------------------------


def _is_trusted(workspace: Path, trusted: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    place = workspace.resolve()
    for text in trusted:
        home = text == "~" or text.startswith("~/")
        folder = (_home(environment) / text[2:] if home else Path(text)).resolve()
        if folder.is_absolute() and (Path(text).is_absolute() or home) and place.is_relative_to(folder):
            return True
    return False


def _tightening(project: Mapping[str, Any], user: Config, ignored: list[str]) -> dict[str, Any]:
    """What of an untrusted file may be followed: it can ask and deny more, and lower limits. Adds the rest's names to
    `ignored`."""
    followed: dict[str, Any] = {}
    for key, value in project.items():
        if key == "permissions":
            followed[key] = {name: rules for name, rules in value.items() if name != "allow"}
            if value.get("allow"):
                ignored.append("permissions.allow")
        elif key == "providers":
            followed[key] = _harmless_providers(value, user, ignored)
        elif key == "agents":
            followed[key] = {name: most for name, most in value.items() if most <= getattr(user.agents, name)}
            ignored += [f"agents.{name}" for name in value if name not in followed[key]]
        elif key == "budget":
            followed[key] = _lower_budget(value, user.budget, "budget", ignored)
        elif _tightens(key, value, project, user):
            followed[key] = value
        else:
            ignored.append(key)
    return followed


def _tightens(key: str, value: Any, project: Mapping[str, Any], user: Config) -> bool:
    if key == "permission_mode":
        return _strictness(value, 99) <= _strictness(user.permission_mode, 0)
    if key == "model":  # a repository may not choose where its reader's text goes
        name = str(value).partition("/")[0]
        return name in BUILT_IN | user.providers and name not in project.get("providers", {})
    if key == "sandbox":
        asked, mine = (_SANDBOXES.get(_letters(text)) for text in (str(value), user.sandbox))
        return asked is not None and mine is not None and asked >= mine
    if key == "network":
        return value is False
    if key in _LIMITS:
        return bool((value or _UNLIMITED) <= (getattr(user, key) or _UNLIMITED))
    return key in ("approval_timeout", "shell_timeout", "retry_base_ms")


def _strictness(mode: str, unknown: int) -> int:
    """How much a mode frees; a spelling that is not in the table counts as `unknown`."""
    return _STRICTNESS.get(_letters(mode), unknown)


def _letters(word: str) -> str:
    return "".join(c for c in word.lower() if c.isalpha())


def _harmless_providers(tables: Mapping[str, Any], user: Config, ignored: list[str]) -> dict[str, Any]:
    """New names without a key only: they are used when a person chooses a model of theirs."""
    found = {}
    for name, table in tables.items():
        if name in BUILT_IN or name in user.providers or table.get("api_key_env"):
            ignored.append(f"providers.{name}")
        else:
            found[name] = table | {"chosen_only": True}
    return found


def _lower_budget(table: Mapping[str, Any], mine: Limits, name: str, ignored: list[str]) -> dict[str, Any]:
    """The amounts that are lower than the user's, or where the user has none."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in budget.WHAT:
            asked, limit = budget.amount(key, value), budget.amount(key, getattr(mine, key))
            if asked and asked <= (limit or budget.AMOUNT_MAX):
                found[key] = value
            else:
                ignored.append(f"{name}.{key}")
        else:
            found[key] = _lower_budget(value, getattr(mine, key), f"{name}.{key}", ignored)
    return found


def _refuse_key_theft(project: Mapping[str, Any], path: Path, user_path: Path) -> None:
    guarded = {provider.api_key_env: provider.base_url for provider in BUILT_IN.values() if provider.api_key_env}
    for name, table in project.get("providers", {}).items():
        key = str(table.get("api_key_env"))
        if key in guarded and table.get("base_url") != guarded[key]:
            raise ConfigError(
                f"{path}: provider {name!r} would send {key} to {table.get('base_url')}",
                hint=f"if you mean it, move the table to {user_path}",
            )
