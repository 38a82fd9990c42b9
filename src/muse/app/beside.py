"""What the state pane says and the fold does not hold: the size of each agent's last request, open questions.

An index that grows event by event and answers for any event that it has seen. It keeps numbers only; what it says is
read again from the events.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

from muse.event.envelope import Event
from muse.event.kinds import ModelRequested, ModelResponded, QuestionAnswered, QuestionAsked
from muse.view.panel import Beside, Question, Size


class Besides:
    """For every event of one log, as far as its events were taken in, in their order."""

    def __init__(self) -> None:
        self._requests: dict[str, array[int]] = {}
        self._answers: dict[int, int] = {}
        """The request before which an agent's answer came: request → response."""
        self._questions: dict[int, int] = {}
        """Question → the event that answered it, 0 while nobody did."""

    def take(self, event: Event) -> None:
        """The next event."""
        body = event.body
        if isinstance(body, ModelRequested):
            self._requests.setdefault(event.agent, array("Q")).append(event.seq)
        elif isinstance(body, ModelResponded):
            if asked := self._requests.get(event.agent):
                self._answers[asked[-1]] = event.seq
        elif isinstance(body, QuestionAsked):
            self._questions[event.seq] = 0
        elif isinstance(body, QuestionAnswered) and self._questions.get(body.question) == 0:
            self._questions[body.question] = event.seq

    def at(self, seq: int, event: Callable[[int], Event]) -> Beside:
        """As of event `seq`; `event` reads one. Agents are those that have asked a model by then."""
        sizes = {agent: size for agent in self._requests if (size := self._size(agent, seq, event)) is not None}
        return Beside(sizes=sizes, questions=tuple(self._open(seq, event)))

    def _size(self, agent: str, seq: int, event: Callable[[int], Event]) -> Size | None:
        asked = self._requests[agent]
        found = bisect_right(asked, seq)
        if not found:
            return None
        body = event(asked[found - 1]).body
        if not isinstance(body, ModelRequested):
            return None
        answer = self._answers.get(asked[found - 1], 0)
        answered = event(answer).body if 0 < answer <= seq else None
        usage = answered.usage if isinstance(answered, ModelResponded) else None
        tokens = usage.input + usage.cache_read + usage.cache_write if usage is not None else 0
        return Size(seq=asked[found - 1], items=body.items, request_bytes=body.request_bytes, tokens=tokens)

    def _open(self, seq: int, event: Callable[[int], Event]) -> Iterator[Question]:
        for asked, answered in self._questions.items():
            if asked <= seq and not 0 < answered <= seq:
                body = event(asked).body
                text = body.text if isinstance(body, QuestionAsked) else ""
                yield Question(seq=asked, agent=event(asked).agent, text=text)
