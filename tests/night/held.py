"""A provider that keeps some answers to itself until a test lets them go."""

import json
import threading
from collections.abc import Mapping, Sequence

from muse.effect.model.scripted import Script, Step
from muse.testing.wire import AnthropicServer, Received, Trouble
from tests.night import work

Place = tuple[int, int]
"""A child's number (0: main) and a step of its script; -1 for what is no step, such as a summary."""


class HeldServer(AnthropicServer):
    """An Anthropic server with gates: a request at one of the places waits until that gate is open."""

    def __init__(
        self, script: Script, gates: Sequence[Place], faults: Mapping[int, Sequence[Trouble]] | None = None,
        asides: Mapping[str, Step] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(script, faults, long=bool(asides), asides=asides)
        self.gates = {place: threading.Event() for place in gates}
        self.waiting: set[Place] = set()

    def hold(self, received: Received) -> None:
        """Wait at the gate, if there is one; also a client that is dead by now waits there."""
        place = self.place(received)
        gate = self.gates.get(place)
        if gate is None:
            return
        self.waiting.add(place)
        while not gate.wait(0.02) and not self.closing.is_set():
            pass

    def place(self, received: Received) -> Place:
        """Who asks for what."""
        body = json.loads(received.body)
        found = work.TASK.search(self.first_prompt(body))
        return int(found[1]) if found else 0, -1 if self.aside(body) else received.step
