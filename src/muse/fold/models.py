"""Which model an agent asks, and what is known of it. Pure, from settings and state; must not know how one is asked."""

from pathlib import PurePosixPath
from typing import Final

import msgspec

from muse.event.content import ModelFacts, ModelRef, Settings, Usage
from muse.fold.state import Agent, ModelCall, Session

RETRYABLE = frozenset({"rate_limited", "overloaded", "server", "network", "timeout", "cut", "garbage"})
"""Failures of a model attempt after which the same request may be sent again."""
FORBIDDEN: Final = 403
"""The key is known, and has no right to this: to this model, most often."""
COST_MAX: Final = 10**10
"""Millionths of a dollar that a response costs at most, whatever was counted: sums stay what a log can hold."""


def session_ref(settings: Settings) -> ModelRef:
    """The session's own model."""
    return ModelRef(provider=settings.provider, dialect=settings.dialect, model=settings.model)


def ref_of(state: Session, text: str) -> ModelRef | None:
    """The model that `text` names: `provider/name`, or a bare name of the session's provider; None where the session
    reaches no such provider, or has a budget of money and does not know what that model costs. "" is the session's own
    model."""
    settings = state.settings
    if settings is None:
        return None
    own = session_ref(settings)
    if not text or text == own.name:
        return own
    known = {one.provider: one.dialect for one in (*settings.models, *settings.fallbacks, own)}
    provider, slash, name = text.partition("/")
    if slash and not (name and provider in known):
        return None
    found = (
        _ref(settings, provider, known[provider], name) if slash else _ref(settings, own.provider, own.dialect, text)
    )
    costs = any(limit.what == "cost_microusd" for limit in settings.limits)
    return None if costs and not is_priced(settings, found) else found


def _ref(settings: Settings, provider: str, dialect: str, name: str) -> ModelRef:
    """A script is a file: its path is taken from the folder of the session's own."""
    if dialect == "scripted" and settings.dialect == dialect:
        name = str(PurePosixPath(settings.model).parent / name)
    return ModelRef(provider=provider, dialect=dialect, model=name)


def model_ref(state: Session, agent: Agent) -> ModelRef:
    """The model that the agent's next request goes to."""
    assert state.settings is not None, "a model before the first opening"
    return agent.ref or ref_of(state, agent.model) or session_ref(state.settings)


def may_retry(state: Session, call: ModelCall) -> bool:
    """Whether a failed attempt is followed by another of the same model, now or when the provider's date has come."""
    assert state.settings is not None
    within = call.failures < state.settings.model_attempts_max or bool(call.retry_until)
    return call.failure in RETRYABLE and within


def chosen_in_vain(state: Session, agent: Agent) -> bool:
    """Whether the agent's failed call shows that the model which its parent or its role chose for it cannot be had,
    while the session's own may well be: no such model, no key or no right to it, or from the first nobody who answers.
    """
    call, settings = agent.call, state.settings
    if settings is None or not agent.model or agent.fallback or call is None or call.phase != "failed":
        return False
    own, ref = session_ref(settings), call.ref or model_ref(state, agent)
    if ref == own:
        return False
    elsewhere = _source(ref) != _source(own)
    if call.failure == "auth":
        return elsewhere or call.status == FORBIDDEN
    absent = call.failure == "invalid" or (elsewhere and call.failure in RETRYABLE and not may_retry(state, call))
    return absent and not agent.answered


def _source(ref: ModelRef) -> str:
    """What one key and one server stand for: a provider, or a script."""
    return ref.name if ref.dialect == "scripted" else ref.provider


def fallback_of(state: Session, agent: Agent) -> ModelRef | None:
    """The model that the agent's failed call goes on with: the next fallback, when attempts are used up, the provider
    wants a long wait, or the model that was chosen for this agent cannot be had. None while there is nothing to switch.
    """
    call, settings = agent.call, state.settings
    if call is None or settings is None or call.phase != "failed" or f"retry:{call.key}" in state.timers:
        return None
    if call.failure not in RETRYABLE and not chosen_in_vain(state, agent):
        return None
    if not call.retry_until and may_retry(state, call):
        return None
    ref = model_ref(state, agent)
    keyless = _source(ref) if call.failure == "auth" and call.status != FORBIDDEN else ""
    left = settings.fallbacks[agent.fallback :]
    return next((one for one in left if one != ref and _source(one) != keyless), None)


def facts_of(settings: Settings, ref: ModelRef) -> ModelFacts:
    """What the session knows of a model: by its name, else by the longest start of it that a family is known by
    (`anthropic/claude*`); of one that it knows nothing of, that."""
    named = [one for one in settings.facts if one.name == ref.name]
    families = [one for one in settings.facts if one.name.endswith("*") and ref.name.startswith(one.name[:-1])]
    families.sort(key=lambda one: len(one.name))
    return (named or families[-1:] or [ModelFacts(name=ref.name)])[0]


def is_priced(settings: Settings, ref: ModelRef) -> bool:
    """Whether it is known what a request to this model costs. All models of a provider are known by `provider/*`, where
    it says so itself or is free."""
    known = facts_of(settings, ref)
    free = ref.dialect == "scripted" or any(one.name == f"{ref.provider}/*" for one in settings.facts)
    return bool(known.input_microusd or known.output_microusd) or free


def priced(settings: Settings, ref: ModelRef, usage: Usage) -> Usage:
    """The usage with its cost, rounded up to a millionth of a dollar: the provider's own, else by the known prices."""
    facts = facts_of(settings, ref)
    spent = (
        usage.input * facts.input_microusd
        + usage.output * facts.output_microusd
        + usage.cache_read * facts.cache_read_microusd
        + usage.cache_write * facts.cache_write_microusd
    )
    if usage.cost_microusd or not spent:
        return usage
    return msgspec.structs.replace(usage, cost_microusd=min(-(-spent // 1_000_000), COST_MAX))
