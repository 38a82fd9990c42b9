"""What a session runs with."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from muse import __version__
from muse.app.budgets import facts, limits_of, merged, with_budget, with_prices
from muse.app.cut_off import require_whole
from muse.app.models import usable_providers
from muse.app.places import event_at
from muse.app.sandbox import parse_sandbox, sandbox_again
from muse.config import BUILT_IN, Config, Loaded, Permissions, provider_of
from muse.decide.policy import parse_mode, parse_rule
from muse.errors import ConfigError, Damaged, NewerLog, UsageError
from muse.event.content import ModelRef, PermissionRules, Settings
from muse.log.protocol import Log
from muse.runtime.session import Session

SCRIPTED = "scripted/"
LIMITS = {
    "approval_timeout": "approval_timeout_seconds",
    "max_output_tokens": "output_tokens_max",
    "max_model_attempts": "model_attempts_max",
    "max_model_calls": "model_calls_max",
    "max_parallel_tools": "parallel_tools_max",
    "shell_timeout": "shell_timeout_seconds",
    "park_after": "park_seconds_min",
    "compact_at": "compact_permille",
    "retry_base_ms": "retry_base_ms",
}
"""Key of the settings file → field of the settings that a session records."""
AGENTS = {"parallel": "agents_parallel_max", "depth": "agents_depth_max", "total": "agents_total_max"}
"""The same of the table `agents`."""
APPROVAL_TIMEOUT = 300
"""Seconds that a request waits where the settings say nothing and no person sits at the terminal."""


def settings_of(config: Config, model: str = "", mode: str = "") -> Settings:
    """What `session.opened` records of a new session. Raises `ConfigError` for a model, mode or rule that cannot be
    used."""
    provider, dialect, rest = _provider(config, model or config.model)
    found = Settings(
        provider=provider,
        dialect=dialect,
        model=rest,
        mode=parse_mode(mode or config.permission_mode),
        permissions=permission_rules(config.permissions),
        sandbox=parse_sandbox(config.sandbox),
        network=config.network,
    )
    found = msgspec.structs.replace(found, **_limits(config), limits=limits_of(config.budget), **_models(config))
    return with_fallbacks(config, found, config.fallback_models)


def _models(config: Config) -> dict[str, Any]:
    """The providers whose models agents may be given, and what is known of models."""
    usable = usable_providers(config)
    refs = tuple(ModelRef(provider=name, dialect=one.dialect, model="") for name, one in usable.items())
    return {"models": refs, "facts": facts(config, usable)}


def with_fallbacks(config: Config, settings: Settings, names: Iterable[str]) -> Settings:
    """The settings with these models to switch to; a bare name is one of the session's provider. Raises
    `ConfigError`."""
    refs = []
    for name in filter(None, (one.strip() for one in names)):
        provider, dialect, rest = _provider(config, name if "/" in name else f"{settings.provider}/{name}")
        refs.append(ModelRef(provider=provider, dialect=dialect, model=rest))
    return msgspec.structs.replace(settings, fallbacks=tuple(refs))


def limited(
    config: Config, settings: Settings, budget: Iterable[str], fallbacks: str, state: Session | None = None
) -> Settings:
    """The settings with what `--budget` and `--fallback-model` say. Raises `ConfigError`, `UsageError`."""
    found = with_budget(settings, budget, state)
    if fallbacks:
        found = with_fallbacks(config, found, fallbacks.split(","))
    return with_prices(config, found)


def _limits(config: Config) -> dict[str, int]:
    found = {name: getattr(config, key) for key, name in LIMITS.items()}
    found |= {name: getattr(config.agents, key) for key, name in AGENTS.items()}
    if found["approval_timeout_seconds"] is None:
        found["approval_timeout_seconds"] = APPROVAL_TIMEOUT
    found["compact_permille"] *= 10
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
    new = permission_rules(config.permissions)
    rules = PermissionRules(
        allow=_joined(state.allow, new.allow if "permissions" in given else ()),
        ask=_joined(state.ask, new.ask),
        deny=_joined(state.deny, new.deny),
    )
    limits = _limits(config)
    changes: dict[str, object] = {name: limits[name] for key, name in LIMITS.items() if key in given}
    if "agents" in given:
        changes |= {name: limits[name] for name in AGENTS.values()}
    changes |= {"mode": parse_mode(mode or state.mode), "permissions": rules}
    changes["approval_timeout_seconds"] = limits["approval_timeout_seconds"]
    changes["sandbox"] = sandbox_again(state.settings.sandbox, config.sandbox, "sandbox" in given)
    changes["network"] = config.network and (state.settings.network or "network" in given)
    if model:
        provider, dialect, rest = _provider(config, model)
        changes |= {"provider": provider, "dialect": dialect, "model": rest}
    if "budget" in given:
        changes["limits"] = merged(state.settings.limits, limits_of(config.budget))
    known = _models(config)
    named = {one.name: one for one in (*state.settings.facts, *known["facts"])}
    changes |= {"models": known["models"], "facts": tuple(named.values())}
    changes["addresses"] = _addresses_again(state.settings.addresses, loaded, chosen=bool(model))
    settings: Settings = msgspec.structs.replace(state.settings, **changes)
    return with_fallbacks(config, settings, config.fallback_models) if "fallback_models" in given else settings


def with_addresses(settings: Settings, loaded: Loaded) -> Settings:
    """The settings with the addresses of providers, where `-c` gave any: they stand in no file, and the session goes on
    at no other."""
    return (
        msgspec.structs.replace(settings, addresses=_addresses(loaded.config)) if _names_providers(loaded) else settings
    )


def _names_providers(loaded: Loaded) -> bool:
    return "providers" in loaded.given


def _addresses(config: Config) -> tuple[str, ...]:
    from muse.effect.model.wire import shown_url

    return tuple(f"{name}={shown_url(one.base_url)}" for name, one in sorted(config.providers.items()))


def _addresses_again(recorded: tuple[str, ...], loaded: Loaded, *, chosen: bool) -> tuple[str, ...]:
    """The addresses that a session goes on with. Raises ConfigError where one is not the recorded any more, unless the
    model is `chosen` anew: what was said would go, with a key, to somebody whom nobody named."""
    if _names_providers(loaded):
        return _addresses(loaded.config)
    if not recorded or chosen:
        return ()
    known = set(_addresses(msgspec.structs.replace(loaded.config, providers=BUILT_IN | loaded.config.providers)))
    for one in recorded:
        if one not in known:
            name, _, address = one.partition("=")
            raise ConfigError(
                f"this session was begun with the provider {name} at {address}, given with -c; another is set now",
                hint=f"give it again, -c providers.{name}.base_url={address}, or choose a model anew with -m",
            )
    return recorded


def with_rules(settings: Settings, allow: tuple[str, ...], deny: tuple[str, ...]) -> Settings:
    """The settings with more rules. Raises `ConfigError` for one that cannot be read."""
    more = permission_rules(Permissions(allow=allow, deny=deny))
    old = settings.permissions
    joined = PermissionRules(allow=_joined(old.allow, more.allow), ask=old.ask, deny=_joined(old.deny, more.deny))
    return msgspec.structs.replace(settings, permissions=joined)


def _joined(old: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *more)))


def permission_rules(permissions: Permissions) -> PermissionRules:
    """The rules of a settings table. Raises `ConfigError` for one that cannot be read."""
    for text in (*permissions.allow, *permissions.ask, *permissions.deny):
        try:
            parse_rule(text)
        except ConfigError as error:
            hint = error.hint or "docs/permissions.md shows what a rule looks like"
            raise ConfigError(f"permissions: {text!r} is no rule: {error}", hint=hint) from error
    return PermissionRules(allow=permissions.allow, ask=permissions.ask, deny=permissions.deny)


def require_continuable(log: Log, state: Session, *, recovered: bool = False) -> None:
    """Raises NewerLog when the log holds events that this version does not know, UsageError when text that the agents
    went by was taken out of it, Damaged when events are lost from it: it can be read, not continued. Where all after
    some event is lost, `recovered` says that the person wants to go on from there. Raises Incomplete when its end is
    known to be missing."""
    if state.imported:
        raise UsageError(
            f"session {log.session} was imported from {state.imported}: it is frozen, and nothing goes on from it",
            hint="read it (muse replay, log, show, search, export); going on from one means a fork, which comes later",
        )
    if not recovered:
        require_whole(log, state)
    if state.recovered:
        raise Damaged(
            "this session cannot go on: it was saved from a damaged one, and events are lost from it:"
            f" {_some(state.recovered)}",
            hint="read it (muse replay, muse log); muse recover DAMAGED --before-damage makes one that can go on",
        )
    if state.cut and not recovered and state.opened < state.cut:
        raise Damaged(
            f"this session was saved from a damaged one: all after event {state.cut - 1} is lost",
            hint="look whether the files are further than it says, then: muse resume SESSION --recovered",
        )
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
