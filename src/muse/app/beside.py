"""What the state pane says and the fold does not hold: the size of each agent's last request, open questions.

An index that grows event by event and answers for any event that it has seen. It keeps numbers only, so that an answer
costs no reading, however many agents there are; only the text of a question is read again from its event.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

import msgspec

from muse.event.content import Usage
from muse.event.envelope import Event
from muse.event.kinds import ModelRequested, ModelResponded, QuestionAnswered, QuestionAsked
from muse.view.panel import Beside, Question, Size


class _Sent:
    """The requests of one agent, and what the provider counted in each."""

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._answers = array("Q")
        """The event that answered each, 0 while none has."""
        self._items = array("Q")
        self._bytes = array("Q")
        self._tokens = array("Q")

    def asked(self, seq: int, body: ModelRequested) -> None:
        """A request."""
        numbers = (seq, 0, max(body.items, 0), max(body.request_bytes, 0), 0)
        for column, number in zip(
            (self._seqs, self._answers, self._items, self._bytes, self._tokens), numbers, strict=True
        ):  # fmt: skip
            column.append(number)

    def answered(self, seq: int, usage: Usage) -> None:
        """The answer to the last one."""
        if not self._answers[-1]:
            self._answers[-1] = seq
            self._tokens[-1] = max(usage.input + usage.cache_read + usage.cache_write, 0)

    def at(self, seq: int) -> Size | None:
        """The last request up to event `seq`."""
        at = bisect_right(self._seqs, seq) - 1
        if at < 0:
            return None
        tokens = self._tokens[at] if 0 < self._answers[at] <= seq else 0
        return Size(seq=self._seqs[at], items=self._items[at], request_bytes=self._bytes[at], tokens=tokens)


class _Asked(msgspec.Struct):
    seq: int
    answered: int = 0


class Besides:
    """For every event of one log, as far as its events were taken in, in their order."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self._questions: dict[int, _Asked] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        body = event.body
        if isinstance(body, ModelRequested):
            self._sent.setdefault(event.agent, _Sent()).asked(event.seq, body)
        elif isinstance(body, ModelResponded):
            if (sent := self._sent.get(event.agent)) is not None:
                sent.answered(event.seq, body.usage)
        elif isinstance(body, QuestionAsked):
            self._questions[event.seq] = _Asked(event.seq)
        elif isinstance(body, QuestionAnswered):
            asked = self._questions.get(body.question)
            if asked is not None and not asked.answered:
                asked.answered = event.seq

    def at(self, seq: int, event: Callable[[int], Event]) -> Beside:
        """As of event `seq`; `event` reads one. Agents are those that have asked a model by then."""
        sizes = {agent: size for agent, sent in self._sent.items() if (size := sent.at(seq)) is not None}
        return Beside(sizes=sizes, questions=tuple(self._open(seq, event)))

    def _open(self, seq: int, event: Callable[[int], Event]) -> Iterator[Question]:
        for one in self._questions.values():
            if one.seq <= seq and not 0 < one.answered <= seq:
                asked = event(one.seq)
                text = asked.body.text if isinstance(asked.body, QuestionAsked) else ""
                yield Question(seq=one.seq, agent=asked.agent, text=text)
