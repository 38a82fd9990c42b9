"""Durations, sizes, counts and money in a person's words."""


def duration(milliseconds: int) -> str:
    """`80 ms`, `1.2 s`, `3 min 05 s`, `2 h 05 min`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds // 100 / 10:.1f} s"
    seconds = milliseconds // 1000
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"


def size(length: int) -> str:
    """`12 B`, `5.2 kB`, `3.1 MB`, in powers of 1000."""
    if length < 1000:
        return f"{length} B"
    value = float(length)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95 or unit == "GB":
            return f"{value:.1f} {unit}"
    raise AssertionError("the last unit takes everything")


def money(microusd: int) -> str:
    """`$0.0042` below a cent's reach, `$1.27` above a dollar."""
    return f"${microusd / 1_000_000:.4f}" if microusd < 1_000_000 else f"${microusd / 1_000_000:.2f}"


def plural(number: int, one: str, many: str = "") -> str:
    """`1 file`, `3 files`, `1,200 events`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def age(seconds: int) -> str:
    """How long ago, in one unit: `now`, `40 s`, `5 min`, `3 h`, `12 d`."""
    if seconds < 5:
        return "now"
    for limit, unit, length in ((90, "s", 1), (90 * 60, "min", 60), (36 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{seconds // length} {unit}"
    return f"{seconds // 86400:,} d"
