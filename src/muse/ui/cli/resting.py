"""What became of an agent, in a person's words, with the command that goes on: for `muse wait` and `muse result`."""

from muse.view.rest import Rest
from muse.view.visible import one_line


def rest_words(rest: Rest, name: str) -> str:
    """One line on it; `name` is what names the session to a person."""
    whom = f" of {rest.whom}" if rest.whom not in ("", rest.agent) else ""
    then = then_what(rest, name)
    match rest.word:
        case "done":
            return "done"
        case "idle":
            return "idle: nothing was said to it yet"
        case "imported":
            return "imported: nothing goes on from it"
        case "approval":
            return f"waits for approval @{rest.seq}{whom}: {then}"
        case "question":
            return f"waits for an answer to @{rest.seq}{whom}: {then}"
        case "paused":
            return f"paused{whom}: {then}"
        case "stopped":
            never = f"it cannot go on: {rest.about}" if rest.about else ""
            return f"stopped: {never or f'nobody runs it, and it has not ended: {then}'}"
        case "works":
            return f"works{': ' if rest.about else ''}{one_line(rest.about)}"
        case "provider" | "budget" | "unanswered" | "failed" | "cancelled":
            why = f": {one_line(rest.about)}" if rest.about else ""
            return f"{rest.word}{whom}{why}{f'; go on: {then}' if then else ''}"


def then_what(rest: Rest, name: str) -> str:
    """The command that goes on, "" where none is needed."""
    lane = f":{rest.whom}" if rest.whom not in ("", "main") else ""
    said = {
        "approval": f"muse approve {name}@{rest.seq}",
        "question": f'muse answer {name}@{rest.seq} "…"',
        "paused": f"muse continue {name}{lane}",
        "provider": f"muse resume {name}",
        "budget": f"muse resume {name} --budget …",
        "unanswered": f'muse resume {name} "go on"',
        "stopped": "" if rest.about else f"muse resume {name}",
    }.get(rest.word, "")
    waits_for_a_person = rest.word in ("approval", "question", "paused")
    return f"{said}; nobody runs it: then muse resume {name}" if waits_for_a_person and not rest.alive else said
