"""Budgets and prices as people write them: `2M` tokens, `4.50` dollars, `8h`. Whole numbers come out, never a float.

This module must not know where they are written or what reaches one.
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from muse.errors import ConfigError

SCOPES: Final = ("session", "agent", "tree")
WHAT: Final = {"tokens": "tokens", "cost": "cost_microusd", "turns": "turns", "calls": "calls", "time": "seconds"}
"""Key of a budget → what is counted, as the log names it."""
KEYS: Final = {what: key for key, what in WHAT.items()}
OTHER_NAMES: Final = {"wall": "time"}
"""What people also call a key."""

AMOUNT_MAX: Final = 2**53
DIGITS_MAX: Final = 20
"""Before the point or behind it; more than any amount has."""

_UNITS: Final = {"": 1, "k": 1000, "m": 1_000_000, "g": 1_000_000_000}
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_time: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_EXAMPLES: Final = {
    "tokens": "2M, 500k or 2_000_000", "turns": "20", "calls": "500", "cost": '"4.50"', "time": "8h, 90m or 1h30m",
}  # fmt: skip


def amount(key: str, given: object) -> int:
    """A budget's amount in the unit that is counted: tokens, millionths of a dollar, turns, calls, seconds. 0 is no
    limit. Raises `ConfigError` that says how one is written."""
    text = str(given).strip().replace("_", "").lower()
    try:
        found = microusd(text) if key == "cost" else _seconds(text) if key == "time" else _count(text)
    except (InvalidOperation, ValueError, KeyError):
        found = -1
    if isinstance(given, bool) or not 0 <= found <= AMOUNT_MAX:
        raise ConfigError(f"{given!r} is no amount for {key}", hint=f"for example {_EXAMPLES[key]}")
    return found


def microusd(text: str) -> int:
    """US dollars as millionths, exactly. Raises `ValueError` or `InvalidOperation` for what is no amount."""
    found = _decimal(text.removeprefix("$")) * 1_000_000
    if found != found.to_integral_value() or found < 0:
        raise ValueError(text)
    return int(found)


def price(given: object) -> int:
    """A price in US dollars, as millionths of a dollar. Raises `ConfigError`."""
    try:
        found = microusd(str(given).strip().replace("_", ""))
    except (InvalidOperation, ValueError):
        found = -1
    if isinstance(given, bool) or not 0 <= found <= AMOUNT_MAX:
        raise ConfigError(f"{given!r} is no price", hint='US dollars for a million tokens, for example "0.30"')
    return found


def written(key: str, value: int) -> str:
    """An amount as `amount` takes it, as short as it can be said exactly."""
    if key == "cost":
        whole, rest = divmod(value, 1_000_000)
        return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")
    if key == "time":
        unit = next((unit for unit in ("h", "m") if value and value % _SECONDS[unit] == 0), "s")
        return f"{value // _SECONDS[unit]}{unit}"
    unit = next((unit for unit in ("m", "k") if value and value % _UNITS[unit] == 0), "")
    return f"{value // _UNITS[unit]}{'M' if unit == 'm' else unit}"


def said(what: str, value: int) -> tuple[str, str]:
    """What is counted, as the log names it, and how much of it, in the words of a person: `cost` and `$0.012345`,
    `time` and `1h30m`, `model calls` and `1,000`."""
    if what == "cost_microusd":
        whole, rest = divmod(value, 1_000_000)
        return "cost", f"${whole:,}.{f'{rest:06d}'.rstrip('0'):0<2}"
    if what == "seconds":
        return "time", _time_words(value)
    return what.replace("_", " "), f"{value:,}"


def _time_words(seconds: int) -> str:
    parts = []
    for unit, length in _SECONDS.items():
        number, seconds = divmod(seconds, length)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def in_own_names(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """A table of amounts with the keys that the log knows. Raises `ConfigError` where a key is given under two
    names."""
    for other, key in OTHER_NAMES.items():
        if other in amounts and key in amounts:
            raise ConfigError(f"{other} and {key} are two names of one budget", hint="give one of them")
    return {OTHER_NAMES.get(key, key): value for key, value in amounts.items()}


def part(text: str) -> tuple[str, str, str]:
    """(scope, key, amount as written) of one part of `--budget`: `tokens=2M`, `agent.cost=1`. Raises `ConfigError`."""
    name, equals, value = text.strip().partition("=")
    scope, dot, key = name.strip().rpartition(".")
    key = OTHER_NAMES.get(key, key)
    scope = scope if dot else "session"
    if not equals or scope not in SCOPES or key not in WHAT:
        keys = ", ".join(WHAT)
        raise ConfigError(
            f"{text!r} is no budget",
            hint=f"give KEY=AMOUNT, as in tokens=2M,time=8h; with {keys}, and agent.KEY or tree.KEY for each agent",
        )
    return scope, key, value.strip()


def _count(text: str) -> int:
    unit = text[-1:] if text[-1:] in _UNITS and text[-1:] else ""
    found = _decimal(text.removesuffix(unit) if unit else text) * _UNITS[unit]
    if found != found.to_integral_value():
        raise ValueError(text)
    return int(found)


def _decimal(text: str) -> Decimal:
    """A number of a size that amounts have: `1e999999` would take minutes as a whole number, and `1e-999999` become 0,
    which is no limit. Raises `ValueError` or `InvalidOperation`."""
    found = Decimal(text)
    if not found.is_finite() or abs(found.adjusted()) > DIGITS_MAX:
        raise ValueError(text)
    return found


def _seconds(text: str) -> int:
    if text.isdecimal():
        return int(text)
    found = _time.fullmatch(text)
    if not text or found is None:
        raise ValueError(text)
    return sum(int(part or 0) * unit for part, unit in zip(found.groups(), _SECONDS.values(), strict=True))
