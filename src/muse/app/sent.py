"""What a model was sent: at a request, or the last one before any other event; and the last event of an agent."""

from collections.abc import Iterable
from typing import Final

from muse.app.models import rules
from muse.errors import Incomplete, UsageError
from muse.event.kinds import LogImported
from muse.event.sent import Sent
from muse.runtime.reading import Reading

AGENTS_NAMED_MAX: Final = 8


def request_at(reading: Reading, seq: int, agent: str = "") -> Sent:
    """What was sent at event `seq`, or last before it, by its agent (or by the one that is named), with the request
    before that, the answer, and what the model did not see. Raises UsageError when there is no such request,
    `Incomplete` when the log was imported, and `Damaged` beyond the damage."""
    event = reading.event(seq)
    if event is None:
        raise UsageError(f"there is no event {seq}", hint="muse log lists them")
    lane = agent or event.agent
    found = reading.request_at(seq, lane, rules())
    if found is not None:
        return found
    first = reading.event(1)
    if first is not None and isinstance(first.body, LogImported):
        raise Incomplete(
            f"what was sent to the model cannot be told: {reading.session} was imported from another agent's file,"
            " which does not record requests",
            hint="its first event says what else was not recorded: muse show SESSION@1",
        )
    what = f"muse log --agent {lane} --type model.requested lists what was"
    raise UsageError(f"up to #{seq} nothing was sent for {lane}", hint=what)


def last_of(reading: Reading, agent: str = "") -> int:
    """The head, or the last event of an agent. Raises UsageError when it has none."""
    head = reading.head().seq
    if not agent:
        return head
    found = reading.last_of(agent)
    if not found:
        raise no_agent(agent, reading.session, [one.agent for one in reading.earlier(head + 1, ("agent.spawned",))])
    return found


def no_agent(agent: str, session: str, there: Iterable[str]) -> UsageError:
    """What is said of an agent that a session has not; `there` are those that it has."""
    names = sorted(set(there), key=lambda name: [int(part) for part in name.split(".")[1:]])
    more = f" and {len(names) - AGENTS_NAMED_MAX:,} more" if len(names) > AGENTS_NAMED_MAX else ""
    hint = f"there is: {', '.join(names[:AGENTS_NAMED_MAX]) or 'none yet'}{more}"
    return UsageError(f"there is no agent {agent} in {session}", hint=hint)
