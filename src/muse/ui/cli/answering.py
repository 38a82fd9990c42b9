"""An answer to what waits: yes or no to a request, words to a question. Durable before it is acknowledged.

Of several answers the first in the log counts. One that came too late is said to be late: it changes nothing.
"""

from contextlib import suppress

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import ApprovalDecided, ApprovalRequested, QuestionAnswered, QuestionAsked
from muse.ui.cli.asking import chosen, decide
from muse.ui.cli.inbox import Waiting, describe, left_waiting, of_this_folder, only, waiting, waiting_in
from muse.ui.cli.options import words
from muse.ui.cli.output import note as say
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, listener, text_of
from muse.view.visible import headline, one_line


def allow_or_deny(text: str, *, allow: bool, always: bool, note: str, client_id: str, as_json: bool) -> int:
    """Answer the request at an address, or the only one there is. Returns the exit code."""
    tried = f"{'approve' if allow else 'deny'} {words(text)}".rstrip()
    with listener(text or _anywhere(questions=False).address, tried) as to:
        before = app.command_with(to.log, client_id) if client_id else None
        one = _open(to, questions=False, said=words(note)) if before is None else _answered(to, before)
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
    _refuse_late(to, one.event, seq, note)
    return seq, ("allowed" if allow else "denied") + (f", and from now on {one_line(remember)}" if remember else "")


def reply(address: str, text: str, *, client_id: str, as_json: bool) -> int:
    """Answer the question at an address, or the only one there is. Returns the exit code."""
    said = text_of(text, 'muse answer ADDRESS "…"')
    with listener(address or _anywhere(questions=True, said=said).address, f"answer {said}") as to:
        before = app.command_with(to.log, client_id) if client_id else None
        one = _open(to, questions=True, said=said) if before is None else _answered(to, before)
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
    _refuse_late(to, one.event, seq, answer)
    return seq, f"answered {one.agent}: {headline(answer, 200)}"


# -- which is meant ----------------------------------------------------------------------------------------------------


def _anywhere(*, questions: bool, said: str = "") -> Waiting:
    """The only one that waits in this folder: of the sessions that run, or else of those that do not."""
    found = _kind(waiting(), questions=questions) or _kind(left_waiting(), questions=questions)
    return only(of_this_folder(found), _what(questions), _instead("", said))


def _instead(to: str, said: str) -> str:
    """The command that says the words to an agent where nothing asks for them."""
    return f"muse steer {f'{to} ' if to else ''}{app.quoted(said)}" if said else ""


def _kind(found: list[Waiting], *, questions: bool) -> list[Waiting]:
    return [one for one in found if (one.question is not None) == questions]


def _what(questions: bool) -> str:
    return "question" if questions else "request"


def _open(to: Listener, *, questions: bool, said: str) -> Waiting:
    found = waiting_in(to.log, to.state, to.path)
    seq = to.address.seq
    if not seq:
        lane = to.address.agent
        to.agent()
        some = [one for one in _kind(found, questions=questions) if not lane or one.event.agent == lane]
        return only(some, _what(questions), _instead(to.of(lane or "main"), said if questions else ""))
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
    closed = app.closed_by(event, app.events(to.log, seq))
    meant = _meant(event.body, said) if isinstance(event.body, QuestionAsked) else said
    raise app.too_late(event, closed, to.state, to.name, meant)


def _meant(question: QuestionAsked, said: str) -> str:
    """The option that a lone number means; what it is, where there is none of that number."""
    with suppress(UsageError):
        return chosen(question, said)
    return said


def _answered(to: Listener, answer: Event) -> Waiting:
    """What an earlier command with the same client's id answered."""
    body = answer.body
    asked = body.request if isinstance(body, ApprovalDecided) else getattr(body, "question", 0)
    event = app.event_at(to.log, asked) if asked else None
    if event is None or to.address.seq not in (0, asked):
        raise UsageError(f"this id was used for another command (#{answer.seq})", hint="use a new id for a new command")
    return Waiting(f"{to.name}@{asked}", to.log.session, to.path, event)


def _refuse_late(to: Listener, asked: Event, before: int, said: str) -> None:
    """Raises UsageError when this request or question was closed before the answer at seq `before`."""
    if (closed := app.closed_by(asked, app.events(to.log, asked.seq, before))) is not None:
        raise app.too_late(asked, closed, to.state, to.name, said)
