"""Budgets and what models are known to cost, from the settings file and flags to what a session records."""

from collections.abc import Iterable
from typing import Final

import msgspec

from muse.budget import KEYS, WHAT, amount, part, price, written
from muse.config import BUILT_IN, Budget, Config, Limits, Provider
from muse.decide.context import is_priced, session_ref
from muse.decide.limits import tokens
from muse.errors import ConfigError, UsageError
from muse.event.content import Limit, ModelFacts, Settings
from muse.runtime.session import Session

WINDOWS: Final = {
    "anthropic/claude*": 200_000,
    "openai/gpt-5*": 272_000,
    "openai/gpt-4.1*": 1_000_000,
    "openai/gpt-4o*": 128_000,
    "openai/o3*": 200_000,
    "openai/o4*": 200_000,
}
"""Tokens that models of a family take at least, as their makers say (platform.claude.com, platform.openai.com). Some
take more; a table in the settings file says so."""

NO_PRICE: Final = 'add [models."{name}"] to your settings file, with input and output in dollars for a million tokens'


def limits_of(budget: Budget) -> tuple[Limit, ...]:
    """The budgets of a settings file."""
    scopes: tuple[tuple[str, Limits], ...] = (("session", budget), ("agent", budget.agent), ("tree", budget.tree))
    return tuple(
        _limit(scope, key, value) for scope, one in scopes for key in WHAT if (value := amount(key, getattr(one, key)))
    )


def _limit(scope: str, key: str, value: int) -> Limit:
    return msgspec.convert({"scope": scope, "what": WHAT[key], "value": value}, Limit)


def merged(old: Iterable[Limit], new: Iterable[Limit]) -> tuple[Limit, ...]:
    """`new` in place of what `old` says of the same; an amount of 0 takes a budget away."""
    found = {(one.scope, one.what): one for one in (*old, *new)}
    return tuple(one for one in found.values() if one.value)


def with_budget(settings: Settings, texts: Iterable[str], state: Session | None = None) -> Settings:
    """The settings with what `--budget` says: `tokens=2M,agent.cost=1`. `+AMOUNT` adds to the budget that there is,
    or to what the session has used so far. Raises `ConfigError` or `UsageError`."""
    limits = settings.limits
    for text in texts:
        for one in filter(None, (piece.strip() for piece in text.split(","))):
            scope, key, given = part(one)
            value = amount(key, given.removeprefix("+"))
            if given.startswith("+"):
                value += _base(limits, scope, key, state)
            limits = merged(limits, (_limit(scope, key, value),))
    return msgspec.structs.replace(settings, limits=limits)


def _base(limits: tuple[Limit, ...], scope: str, key: str, state: Session | None) -> int:
    there = next((one.value for one in limits if (one.scope, one.what) == (scope, WHAT[key])), 0)
    if there:
        return there
    if scope != "session":
        raise UsageError(f"there is no budget {scope}.{key} to add to", hint=f"give it whole: {scope}.{key}=AMOUNT")
    if state is None:
        return 0
    used = {
        "tokens": tokens(state.usage), "cost": state.usage.cost_microusd, "turns": state.turns,
        "calls": state.answered, "time": state.elapsed_seconds,
    }  # fmt: skip
    return used[key]


def raised(limit: str, scope: str, limits: Iterable[Limit], value: int) -> str:
    """What to give `--budget` for as much room again as the budget had that was reached at `value`."""
    key = KEYS.get(limit, "")
    found = next((one.value for one in limits if (one.scope, one.what) == (scope, limit)), 0)
    if not key or not found:
        return ""
    over = max(value - found, 0)
    more = written(key, (-(-over // found) + 1) * found)
    return f"{key if scope == 'session' else f'{scope}.{key}'}=+{more}"


# -- what is known of models -------------------------------------------------------------------------------------------


def facts(config: Config, usable: Iterable[str]) -> tuple[ModelFacts, ...]:
    """What the settings file says of models, and the windows of families that the session can reach."""
    providers = set(usable)
    families = [
        ModelFacts(name=name, context_tokens=size)
        for name, size in WINDOWS.items()
        if name.partition("/")[0] in providers
    ]
    named = []
    for name, known in config.models.items():
        paid = price(known.input)
        size = known.context or next((size for family, size in WINDOWS.items() if name.startswith(family[:-1])), 0)
        named.append(
            ModelFacts(
                name=name,
                context_tokens=size,
                input_microusd=paid,
                output_microusd=price(known.output),
                cache_read_microusd=paid if known.cache_read is None else price(known.cache_read),
                cache_write_microusd=paid if known.cache_write is None else price(known.cache_write),
            )
        )
    return (*families, *named)


def with_prices(config: Config, settings: Settings) -> Settings:
    """The settings with what else is known of prices where a budget of money holds: whose models are free, or told by
    the provider. Raises `ConfigError` where it is not known what the model or a fallback costs."""
    if not any(limit.what == "cost_microusd" for limit in settings.limits):
        return settings
    known = {one.name for one in settings.facts}
    plain = (f"{name}/*" for name, one in (BUILT_IN | config.providers).items() if _needs_no_price(one))
    more = tuple(ModelFacts(name=name) for name in plain if name not in known)
    settings = msgspec.structs.replace(settings, facts=settings.facts + more)
    for ref in (session_ref(settings), *settings.fallbacks):
        if not is_priced(settings, ref):
            raise ConfigError(
                f"a budget of money, and no price of {ref.name} is known", hint=NO_PRICE.format(name=ref.name)
            )
    return settings


def _needs_no_price(provider: Provider) -> bool:
    """A server of one's own, or a provider that says what each request cost."""
    return not provider.api_key_env or provider.base_url == BUILT_IN["openrouter"].base_url
