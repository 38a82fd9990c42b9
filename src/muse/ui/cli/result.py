"""`muse result`: the last words of an agent that has ended. It reads, and never writes."""

from typing import Final

import click
import msgspec

from muse import app
from muse.errors import Busy, Damaged, UsageError
from muse.ui.cli import completing
from muse.ui.cli.address import resolve
from muse.ui.cli.finding import short_id
from muse.ui.cli.output import Answers, answers, note
from muse.ui.cli.resting import rest_words
from muse.view.fleet import Spent, spent
from muse.view.rest import CODES, Rest, Words, last_words, rest
from muse.view.visible import visible

NOT_ENDED: Final = frozenset({"works", "stopped", "approval", "question", "paused"})


@click.command("result")
@click.argument("address", default="", shell_complete=completing.agents)
@click.option("--json", "as_json", is_flag=True, help="One object: outcome, text, agent, tokens, cost, seq.")
def command(address: str, as_json: bool) -> int:
    """Print the last words of ADDRESS (SESSION[:AGENT]; default: the last session): of a session the answer, of an
    agent that was spawned the result that its parent was given. How it ended is the exit code, and is said on standard
    error where it is not done.

    Exit code: 0 done, 1 failed or cancelled, 3 nobody answered an approval, 4 provider or credentials, 5 a limit, 7 it
    has not ended (muse wait waits for that).

    For example: muse result 4f2k:main.1 > review.md
    """
    place = resolve(address)
    if place.address.seq:
        raise UsageError("a result is what an agent said last", hint=f"one event: muse show {address}")
    with app.read_session(place.path) as reading:
        state = reading.state_after(reading.head().seq)
        lane, name = place.address.agent or "main", short_id(reading.session)
    shown = name if lane == "main" else f"{name}:{lane}"
    if state is None:
        raise Damaged(f"{name}: what is recorded does not fit together", hint=f"muse replay {name} --verify says where")
    agent = state.agents.get(lane)
    if agent is None and lane != "main":
        raise app.no_agent(lane, name, state.agents)
    found = rest(state, lane, alive=bool(app.owner_pid(place.path)))
    ended = found.word not in NOT_ENDED
    words = last_words(agent) if agent is not None and ended else Words()
    with answers() as out:
        if as_json:
            used = spent(agent.usage) if agent is not None else Spent()
            out.json(_json(state.session, found, words, used, ended=ended))
        elif ended:
            _print(words, out)
    if not ended and not as_json:
        raise Busy(f"{shown} has not ended: {rest_words(found, name)}", hint=f"muse wait {shown} waits for it")
    if not as_json and found.word != "done":
        note(f"{shown} {rest_words(found, name)}")
    elif not as_json and not words.text.strip():
        note(f"{shown} is done, and said nothing at its end")
    return CODES[found.word] if ended else Busy.exit_code


def _print(words: Words, out: Answers) -> None:
    """As they are; on a terminal with what a terminal would follow made visible."""
    if words.text:
        text = words.text if words.text.endswith("\n") else f"{words.text}\n"
        out.raw((visible(text) if out.terminal else text).encode())


def _json(session: str, found: Rest, words: Words, used: Spent, *, ended: bool) -> str:
    said = {
        "session": session, "agent": found.agent, "ended": ended, "outcome": found.word, "reason": found.about,
        "text": words.text, "seq": words.seq, "code": CODES[found.word] if ended else Busy.exit_code,
        "tokens": {"input": used.input, "output": used.output, "cached": used.cached},
        "cost_microusd": used.cost_microusd,
    }  # fmt: skip
    return msgspec.json.encode(said, order="sorted").decode()
