"""Settings, read once at start: defaults, then the user's file, the project's file, the environment, `-c`, flags.

    $XDG_CONFIG_HOME/muse/config.toml     (~/.config/muse/config.toml)
    <workspace>/.muse/config.toml

Later ones win key by key; permission rules of both files add up. A project's file is somebody else's text: it may not
send a key that belongs to a built-in provider to another address.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from muse.errors import ConfigError


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[providers.NAME]`: the wire dialect, where it is reached, and the variable that holds the key ("" for none)."""

    dialect: Literal["anthropic", "openai"]
    base_url: str
    api_key_env: str = ""


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[permissions]`: rules such as `shell(git log *)`; deny over ask over allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Times in seconds, sizes in bytes or tokens; 0 means no limit."""

    model: str = ""
    permission_mode: str = "default"
    approval_timeout: int = 300
    max_output_tokens: int = 8192
    max_model_attempts: int = 6
    max_model_calls: int = 1000
    max_parallel_tools: int = 8
    shell_timeout: int = 120
    retry_base_ms: int = 1000
    shell_environment: tuple[str, ...] = ()
    providers: dict[str, Provider] = {}
    permissions: Permissions = Permissions()


BUILT_IN: dict[str, Provider] = {
    "anthropic": Provider(dialect="anthropic", base_url="https://api.anthropic.com", api_key_env="ANTHROPIC_API_KEY"),
    "openai": Provider(dialect="openai", base_url="https://api.openai.com/v1", api_key_env="OPENAI_API_KEY"),
    "openrouter": Provider(dialect="openai", base_url="https://openrouter.ai/api/v1", api_key_env="OPENROUTER_API_KEY"),
    "ollama": Provider(dialect="openai", base_url="http://127.0.0.1:11434/v1"),
    "llamacpp": Provider(dialect="openai", base_url="http://127.0.0.1:8080/v1"),
    "vllm": Provider(dialect="openai", base_url="http://127.0.0.1:8000/v1"),
    "lmstudio": Provider(dialect="openai", base_url="http://127.0.0.1:1234/v1"),
}
"""Providers that need no settings; `[providers.NAME]` adds to them or replaces one."""


def user_file(environment: Mapping[str, str]) -> Path:
    """Where the user's settings are read from."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "muse" / "config.toml"


def project_file(workspace: Path) -> Path:
    """Where the project's settings are read from."""
    return workspace / ".muse" / "config.toml"


def load(workspace: Path, pairs: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ) -> Config:
    """The settings for this workspace; `pairs` are `-c key=value`. Raises `ConfigError` naming the file and key."""
    user = _read(user_file(environment))
    project = _read(project_file(workspace))
    _refuse_key_theft(project, project_file(workspace))
    merged = _merged(_merged({}, user), project)
    if name := environment.get("MUSE_MODEL"):
        merged["model"] = name
    for pair in pairs:
        _set(merged, pair)
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        places = [str(path) for path in (user_file(environment), project_file(workspace)) if path.exists()]
        where = " or ".join([*places, "-c"] if pairs else places) or "the environment"
        raise ConfigError(f"a setting cannot be used: {error}", hint=f"look in {where}") from error


def provider_of(config: Config, model: str) -> tuple[str, Provider, str]:
    """(provider name, provider, model name) of `provider/model`. Raises `ConfigError` that lists what there is."""
    name, slash, rest = model.partition("/")
    known = BUILT_IN | config.providers
    if not slash or not rest or name not in known:
        raise ConfigError(
            f"no provider for the model {model!r}" if model else "no model is chosen",
            hint=f"give -m PROVIDER/MODEL ({', '.join(sorted(known))}), or set model in {user_file(os.environ)}",
        )
    return name, known[name], rest


def muse_home(environment: Mapping[str, str] = os.environ) -> Path:
    """`$MUSE_HOME`, else `$XDG_DATA_HOME/muse`, else `~/.local/share/muse`."""
    if home := environment.get("MUSE_HOME"):
        return Path(home).expanduser().absolute()
    base = environment.get("XDG_DATA_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local" / "share")
    return Path(base) / "muse"


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="mend or remove the file") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: tables merge, permission lists add up, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _added(old, value) if key == "permissions" else _merged(old, value)
        else:
            result[key] = value
    return result


def _added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    lists = {key: [*_list(old.get(key)), *_list(new.get(key))] for key in {**old, **new}}
    return dict(sorted(lists.items()))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _set(merged: dict[str, Any], pair: str) -> None:
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"-c {pair!r} is no key=value", hint="for example: -c approval_timeout=60")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, last = key.strip().split(".")
    for name in tables:
        merged = merged.setdefault(name, {})
        if not isinstance(merged, dict):
            raise ConfigError(f"-c {pair!r}: {name} is no table")
    merged[last] = value


def _refuse_key_theft(project: Mapping[str, Any], path: Path) -> None:
    guarded = {provider.api_key_env: provider.base_url for provider in BUILT_IN.values() if provider.api_key_env}
    providers = project.get("providers")
    for name, table in providers.items() if isinstance(providers, dict) else ():
        key = str(table.get("api_key_env")) if isinstance(table, dict) else ""
        if key in guarded and table.get("base_url") != guarded[key]:
            raise ConfigError(
                f"{path}: provider {name!r} would send {key} to {table.get('base_url')}",
                hint=f"if you mean it, move the table to {user_file(os.environ)}",
            )
