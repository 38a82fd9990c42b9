"""How a turn goes on and ends: prompts, results, cancellation. Used by `evolve` only.

The texts that the model is told stand here, because they are part of the transcript and so of every later request.
"""

from muse.event.conversation import Answered, Resulted, Said
from muse.event.kinds import ApprovalDecided
from muse.fold.state import Agent, Session, ToolRun

MOVED = (
    "[The workspace is in another place now: {now}. Before it was {before}. "
    "Paths that name the old place are out of date; the files as they are now are those to work on.]"
)
MESSAGE = "[Message from {sender}]\n{text}"
NEVER_STARTED = "This call was not started: {why}."
PARTIAL_CHARACTERS_MAX = 4_000


def prompt(state: Session, agent: Agent, said: Said, *, by_agent: bool = False) -> None:
    """Words to an agent, mostly a person's: they begin a turn, or wait for the running one to end. A turn that is stuck
    (the provider failed for good, a limit was reached) goes on with them."""
    if agent.turn and not _stuck(state, agent):
        agent.queue.append(said)
        return
    agent.call = None
    agent.add(said)
    begin(agent, said.seq, by_agent=by_agent)


def moved(agent: Agent, seq: int, before: str, now: str) -> None:
    """The session goes on in another folder than the one that the system prompt names: the next request says so."""
    notice = Said(seq=seq, text=MOVED.format(before=before, now=now), source="notice")
    if agent.turn:
        agent.steers.append(notice)
    else:
        agent.add(notice)


def answered(agent: Agent, stop: str) -> None:
    """A response without tool uses: the turn is over, unless words are waiting to join it."""
    if agent.steers:
        return
    if stop == "max_tokens":
        end(agent, "failed", "the model's answer was cut at its output limit")
    elif stop == "refusal":
        end(agent, "failed", "the model declined to answer")
    else:
        end(agent, "done", "")


def finish(state: Session, agent: Agent, run: ToolRun, text: str, *, error: bool) -> None:
    """A tool use has its one result. When all of the batch have, they enter the transcript in the order of the uses."""
    run.phase, run.text, run.error = "done", text, error
    state.approvals.pop(run.request, None)
    for what in ("approval", "question", "wait"):
        state.timers.pop(f"{what}:{run.key}", None)
    state.questions.pop(run.question, None)
    if any(other.phase != "done" for other in agent.batch):
        return
    agent.add(
        *(
            Resulted(seq=other.cause, call=other.key, use=other.use, text=other.text, error=other.error)
            for other in agent.batch
        )
    )
    agent.batch.clear()
    if agent.ending in ("cancelled", "unanswered"):
        end(agent, agent.ending, agent.reason)


def refusal(body: ApprovalDecided) -> str:
    """What the model reads when a call was denied."""
    if body.by == "rule":
        return f"Denied: {body.rule}. Find another way, or say what you need."
    note = f" They said: {body.note}" if body.note else ""
    return f"The user refused this call.{note} Do not try it again unchanged."


def unanswered(state: Session, agent: Agent, run: ToolRun) -> None:
    """Nobody answered an approval in time: the call is denied and the turn ends when what runs has ended."""
    agent.ending, agent.reason = "unanswered", f"nobody answered the approval #{run.request}"
    drop(state, agent, "the run ended because nobody answered an approval")


def cancel_call(state: Session, agent: Agent, key: str, seq: int, why: str) -> None:
    """Cancel one call: at once when it has not started, else the runtime stops it and records its result."""
    run = next((run for run in agent.batch if run.key == key and run.phase != "done"), None)
    if run is not None:
        run.cancelling, run.cause = True, seq
        if run.phase in ("new", "asked", "approved", "retry"):
            finish(state, agent, run, NEVER_STARTED.format(why=why), error=True)
    elif agent.call is not None and agent.call.key == key:
        cancel(state, agent, seq, why)


def cancel(state: Session, agent: Agent, seq: int, why: str) -> None:
    """Cancel the agent's turn. What runs is stopped by the runtime; what has not started never starts."""
    if not agent.turn:
        return
    agent.ending, agent.reason, agent.cause = "cancelled", why, seq
    agent.steers[:] = [said for said in agent.steers if said.source == "notice" or _is_message(said)]
    if agent.call is not None:
        if agent.call.phase in ("running", "doubted"):
            agent.call.cancelling = True
            return
        state.timers.pop(f"retry:{agent.call.key}", None)
        agent.call = None
    if not agent.batch:
        end(agent, "cancelled", why)
        return
    for run in agent.batch:
        run.cancelling = run.phase != "done"
    drop(state, agent, why)


def _is_message(said: Said) -> bool:
    """Whether another agent said it: that is to be read whatever becomes of the turn, like what is so. What a person
    said to a turn that is cancelled goes with it."""
    return said.text.startswith(MESSAGE.partition("{")[0])


def take_back(state: Session, agent: Agent | None, prompt: int, seq: int) -> None:
    """A person takes back the words that they said at `prompt`, as long as they wait: queued, or to join the running
    turn. Nothing else changes; words that came too late to be taken back stay."""
    if agent is None:
        state.early = tuple(said for said in state.early if said.seq != prompt)
        return
    if not any(said.seq == prompt and said.source != "notice" for said in (*agent.queue, *agent.steers)):
        return
    agent.queue[:] = [said for said in agent.queue if said.seq != prompt]
    agent.steers[:] = [said for said in agent.steers if said.seq != prompt]
    waits = agent.call is not None or agent.batch or agent.ending or agent.steers
    if agent.turn and not waits and agent.items and isinstance(agent.items[-1], Answered):
        agent.cause = seq  # the turn was over but for these words
        end(agent, "done", "")


def interrupted(agent: Agent, seq: int, partial: str) -> None:
    """A model call was stopped: the turn ends, and the next request says so."""
    agent.cause = seq
    end(agent, "cancelled", agent.reason, partial)


def drop(state: Session, agent: Agent, why: str) -> None:
    """Give every tool use that has not started its result."""
    for run in list(agent.batch):
        if run.phase in ("new", "asked", "approved", "retry"):
            finish(state, agent, run, NEVER_STARTED.format(why=why), error=True)


def end(agent: Agent, outcome: str, reason: str, partial: str = "") -> None:
    """The turn is over; the next queued prompt begins one of its own."""
    if outcome == "cancelled":
        begun = f" You had begun to answer: {partial[:PARTIAL_CHARACTERS_MAX]}" if partial else ""
        agent.add(Said(seq=agent.cause, text=f"[The turn was interrupted: {reason}.{begun}]", source="notice"))
    agent.turn, agent.outcome, agent.reason, agent.ending, agent.aside = False, outcome, reason, "", None
    if agent.queue:
        said = agent.queue.pop(0)
        agent.add(said)
        begin(agent, said.seq)


def begin(agent: Agent, seq: int, *, by_agent: bool = False) -> None:
    """A turn of the agent begins with event `seq`. Where another agent's words or result begin it, its calls count on
    from the last one: agents that wake each other would never come to their limit."""
    if not by_agent:
        agent.calls_in_turn = 0
    agent.turn, agent.outcome, agent.reason, agent.ending, agent.cause = True, "", "", "", seq
    agent.turn_counted, agent.aside, agent.woken_from = False, None, None


def _stuck(state: Session, agent: Agent) -> bool:
    call = agent.call
    failed = call is not None and call.phase == "failed" and f"retry:{call.key}" not in state.timers
    return (failed and not (call and call.retry_until)) or agent.ending == "budget"
