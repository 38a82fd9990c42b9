"""An answer to what waits: yes or no to a request, words to a question. Durable before it is acknowledged.

Of several answers the first in the log counts. One that came too late is said to be late: it changes nothing.
"""

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, ApprovalRequested, CommandRefused, QuestionAnswered, QuestionAsked
from muse.ui.cli.asking import chosen, decide
from muse.ui.cli.inbox import Waiting, describe, left_waiting, of_this_folder, only, waiting, waiting_in
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, text_of
from muse.view.summary import decision_words
from muse.view.visible import headline, one_line


def allow_or_deny(text: str, *, allow: bool, always: bool, note: str, client_id: str, as_json: bool) -> int:
    """Answer the request at an address, or the only one there is. Returns the exit code."""
    tried = f"{'approve' if allow else 'deny'} {words(text)}".rstrip()
    with listener(text or _anywhere(questions=False).address, tried) as to:
        before = app.command_with(to.log, client_id) if client_id else None
        one = _open(to, questions=False) if before is None else _answered(to, before)
        say("\n".join(describe(one)))
        seq, said = decided(to, one, allow=allow, always=always, note=words(note), client_id=client_id)
        acknowledge(to, seq, said, as_json=as_json)
    return 0


def decided(
    to: Listener, one: Waiting, *, allow: bool, always: bool = False, note: str = "", client_id: str = ""
) -> tuple[int, str]:
    """Submit a yes or a no. Returns its seq and what it means. Raises UsageError when it came too late."""
    body = one.request
    if always and not body.remember:
        raise UsageError(
            "no rule is offered for this call: what it does cannot be told from its beginning",
            hint=f"allow it once: muse approve {one.address}",
        )
    remember = body.remember if always else ""
    answer = decide(one.event.seq, body, allow=allow, remember=remember, note=note, client=CLIENT)
    seq = app.submit(to.log, answer, one.event.agent, cause=one.event.seq, client_id=client_id)
    refuse_late(to.log, one.event, seq)
    return seq, ("allowed" if allow else "denied") + (f", and from now on {one_line(remember)}" if remember else "")


def reply(address: str, text: str, *, client_id: str, as_json: bool) -> int:
    """Answer the question at an address, or the only one there is. Returns the exit code."""
    said = text_of(text, 'muse answer ADDRESS "…"')
    with listener(address or _anywhere(questions=True).address, f"answer {said}") as to:
        before = app.command_with(to.log, client_id) if client_id else None
        one = _open(to, questions=True) if before is None else _answered(to, before)
        seq, meant = replied(to, one, said, client_id=client_id)
        acknowledge(to, seq, meant, as_json=as_json)
    return 0


def replied(to: Listener, one: Waiting, text: str, *, client_id: str = "") -> tuple[int, str]:
    """Submit words, or an option by its number. Returns the seq and what it means. Raises UsageError when it came too
    late."""
    question = one.question
    assert question is not None
    answer = chosen(question, text)
    body = QuestionAnswered(question=one.event.seq, text=answer, origin=app.origin(CLIENT))
    seq = app.submit(to.log, body, one.event.agent, cause=one.event.seq, client_id=client_id)
    refuse_late(to.log, one.event, seq)
    return seq, f"answered {one.agent}: {headline(answer, 200)}"


# -- which is meant ----------------------------------------------------------------------------------------------------


def _anywhere(*, questions: bool) -> Waiting:
    """The only one that waits in this folder: of the sessions that run, or else of those that do not."""
    found = _kind(waiting(), questions=questions) or _kind(left_waiting(), questions=questions)
    return only(of_this_folder(found), _what(questions))


def _kind(found: list[Waiting], *, questions: bool) -> list[Waiting]:
    return [one for one in found if (one.question is not None) == questions]


def _what(questions: bool) -> str:
    return "question" if questions else "request"


def _open(to: Listener, *, questions: bool) -> Waiting:
    found = waiting_in(to.log, to.state, to.path)
    seq = to.address.seq
    if not seq:
        lane = to.address.agent
        to.agent()
        some = [one for one in _kind(found, questions=questions) if not lane or one.event.agent == lane]
        return only(some, _what(questions))
    event = app.event_at(to.log, seq)
    here = next((one for one in found if one.event.seq == seq), None)
    if here is not None and (here.question is not None) == questions:
        return here
    if here is not None:
        what = "a question" if here.question is not None else "a request for approval"
        raise UsageError(f"#{seq} is {what}", hint=here.how)
    wanted = QuestionAsked if questions else ApprovalRequested
    if event is None or not isinstance(event.body, wanted):
        some = _kind(found, questions=questions)
        waits = f"; {', '.join(one.address for one in some)} waits" if some else ""
        what = "question" if questions else "request for approval"
        raise UsageError(f"#{seq} is no {what}{waits}", hint="muse approvals lists what waits")
    refuse_late(to.log, event, to.state.seq + 1)
    raise UsageError(f"#{seq} needs no answer any more: its call has ended", hint=f"muse log {to.name} says why")


def _answered(to: Listener, answer: Event) -> Waiting:
    """What an earlier command with the same client's id answered."""
    body = answer.body
    asked = body.request if isinstance(body, ApprovalDecided) else getattr(body, "question", 0)
    event = app.event_at(to.log, asked) if asked else None
    if event is None or to.address.seq not in (0, asked):
        raise UsageError(f"this id was used for another command (#{answer.seq})", hint="use a new id for a new command")
    return Waiting(f"{to.name}@{asked}", to.log.session, to.path, event)


def refuse_late(log: app.Log, asked: Event, before: int) -> None:
    """Raises UsageError when an answer to this request or question, and one that holds, stands in the log before seq
    `before`."""
    answers: dict[int, str] = {}
    for event in app.events(log, asked.seq, before):
        body = event.body
        if isinstance(body, ApprovalDecided) and body.request == asked.seq:
            answers[event.seq] = decision_words(body)
        elif isinstance(body, QuestionAnswered) and body.question == asked.seq and event.agent == asked.agent:
            answers[event.seq] = f"“{headline(body.text, 200)}”"
        elif isinstance(body, CommandRefused):
            answers.pop(body.command, None)
    for seq, said in answers.items():
        raise UsageError(
            f"too late: #{asked.seq} was answered before: {said} (#{seq})",
            hint="of several answers the first counts; later ones change nothing",
        )
