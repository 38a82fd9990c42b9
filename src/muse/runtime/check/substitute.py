"""A recorded session under what a project offers today: which prompts, tools and verdicts would be others.

The record is folded twice, as it is and with today's instructions, tools and rules in the place of those that the
project gave when it was recorded. What people, models and commands did stays as it was; the two are compared where the
runtime decided. This module must not know where an offer is read from.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Literal

import msgspec

from muse.decide.context import Rules, next_request, system_prompt
from muse.decide.due import judge
from muse.decide.policy import Verdict
from muse.event.content import Instruction, PermissionRules, Settings, ToolSpec
from muse.event.envelope import Event, Redacted, Unknown
from muse.event.kinds import (
    AgentSpawned,
    ApprovalDecided,
    ApprovalRequested,
    ModelRequested,
    SessionOpened,
    ToolStarted,
)  # fmt: skip
from muse.fold.state import Session, ToolRun
from muse.runtime.check.decisions import KNOWN_RULES
from muse.runtime.check.differences import texts
from muse.runtime.check.story import BROKEN, Story, Told

Aspect = Literal["prompt", "tools", "rules"]

STRICTNESS: Final = ("plan", "default", "accept-edits", "yolo")
CALLS_NAMED_MAX: Final = 50
COMMAND_CHARACTERS_MAX: Final = 100
LINES_MAX: Final = 400


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a project gives to its sessions. `instructions` have paths below the project's top folder; `rules` and
    `mode` ("": it says none) are of the project's own settings; `told` is what a machine adds to a tool's description.
    """

    instructions: tuple[Instruction, ...] = ()
    rules: PermissionRules = PermissionRules()
    mode: str = ""
    tools: tuple[ToolSpec, ...] = ()
    told: dict[str, str] = {}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would be another today."""

    aspect: Aspect
    lines: tuple[str, ...]


def differences(log: Told, rules: Rules, then: Offer, now: Offer) -> list[Difference]:
    """What would be another of this session under `now`, where the project gave `then` when it was kept."""
    return _Twice(log, rules, then, now).run()


class _Twice:
    def __init__(self, log: Told, rules: Rules, then: Offer, now: Offer) -> None:
        self._was, self._would = Story(log), Session(session=log.session)
        self._rules, self._then, self._now = rules, then, now
        self._verdicts: list[str] = []
        self._prompts: dict[str, tuple[str, ...]] = {}
        self._tools: dict[str, tuple[str, ...]] = {}
        self._requests: list[Event] = []
        self._asked = 0

    def run(self) -> list[Difference]:
        from muse.fold.evolve import evolve

        for event in self._was.events():
            body = event.body
            if isinstance(body, Redacted | Unknown):
                break
            if isinstance(body, SessionOpened) and body.rules not in KNOWN_RULES:
                break
            self._compare(event)
            try:
                evolve(self._would, self._substituted(event))
                self._was.fold(event)
            except BROKEN:  # what was recorded cannot go on like that under today's offer
                break
            if self._was.state.incomplete:
                break
        return self._found()

    def _found(self) -> list[Difference]:
        found: list[Difference] = []
        for name, lines in self._prompts.items():
            head = f"the system prompt of {name} is another ({self._of_requests()}):"
            found.append(Difference(aspect="prompt", lines=(head, *lines)))
        for name, lines in self._tools.items():
            found.append(
                Difference(aspect="tools", lines=(f"the tool {name} is another ({self._of_requests()}):", *lines))
            )
        found += [Difference(aspect="rules", lines=(line,)) for line in self._verdicts[:CALLS_NAMED_MAX]]
        if len(self._verdicts) > CALLS_NAMED_MAX:
            more = f"and {len(self._verdicts) - CALLS_NAMED_MAX} more calls"
            found.append(Difference(aspect="rules", lines=(more,)))
        return found

    def _of_requests(self) -> str:
        if not self._requests:
            return "no request would be another"
        first = self._requests[0]
        return f"{len(self._requests)} of {self._asked} requests would be others, from #{first.seq} on"

    # -- what is compared ----------------------------------------------------------------------------------------------

    def _compare(self, event: Event) -> None:
        body = event.body
        match body:
            case AgentSpawned() if not body.parent:
                would = system_prompt(self._would)
                if would != body.system:
                    self._prompts[event.agent] = tuple(islice(texts(body.system, would), LINES_MAX))
            case ModelRequested():
                self._request(event, body.purpose)
            case ToolStarted() | ApprovalRequested() | ApprovalDecided():
                self._verdict(event.agent, body.call)
            case _:
                pass

    def _request(self, event: Event, purpose: Literal["turn", "summary"]) -> None:
        was, would = self._was.state, self._would
        self._asked += 1
        try:
            one = next_request(was, was.agents[event.agent], self._rules, purpose)
            other = next_request(would, would.agents[event.agent], self._rules, purpose)
        except BROKEN:  # no builder for it: nothing is said of its bytes
            return
        if one.body != other.body:
            self._requests.append(event)

    def _verdict(self, agent: str, call: str) -> None:
        """The first word of the rules on a call, then and now."""
        was, would = self._was.state.run(call), self._would.run(call)
        if was is None or would is None or was.phase != "new":
            return
        then = judge(self._was.state, self._was.state.agents[agent], was)
        now = judge(self._would, self._would.agents[agent], would)
        if (then.decision, then.rule) != (now.decision, now.rule) and not _is_by_mode(then, now):
            self._verdicts.append(f"call {call} {_shown(was)} {_past(then)}; {_present(now)}")

    # -- what is put in its place --------------------------------------------------------------------------------------

    def _substituted(self, event: Event) -> Event:
        body = event.body
        if isinstance(body, SessionOpened):
            return msgspec.structs.replace(event, body=self._opened(body))
        if isinstance(body, AgentSpawned) and not body.parent:
            names = tuple(tool.name for tool in self._would.tools)
            system = system_prompt(self._would)
            return msgspec.structs.replace(event, body=msgspec.structs.replace(body, system=system, tools=names))
        return event

    def _opened(self, body: SessionOpened) -> SessionOpened:
        texts_now = body.instructions
        if not self._was.state.opened:
            top = body.git.root if body.git is not None else body.workspace
            texts_now = tuple(msgspec.structs.replace(one, path=f"{top}/{one.path}") for one in self._now.instructions)
        tools = self._offered(body.tools)
        return msgspec.structs.replace(
            body, instructions=texts_now, tools=tools, settings=self._settings(body.settings)
        )  # fmt: skip

    def _offered(self, recorded: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """Today's tools in the order of the recorded ones; a tool that muse does not bring itself stays as it was, and
        so does one that was there already when this was kept, and that the session did not have."""
        now = {spec.name: self._with_told(spec) for spec in self._now.tools}
        then = {spec.name for spec in self._then.tools}
        own = then | now.keys()
        found = [now.get(spec.name, spec) for spec in recorded if spec.name in now or spec.name not in own]
        before = {spec.name: spec for spec in recorded}
        found += [spec for name, spec in now.items() if name not in before and name not in then]
        after = {spec.name: spec for spec in found}
        for name in [*before, *(name for name in after if name not in before)]:
            if lines := _tool_lines(before.get(name), after.get(name)):
                self._tools[name] = lines
        return tuple(found)

    def _with_told(self, spec: ToolSpec) -> ToolSpec:
        more = self._then.told.get(spec.name, "")
        return msgspec.structs.replace(spec, description=spec.description + more)

    def _settings(self, settings: Settings) -> Settings:
        recorded, then, now = settings.permissions, self._then.rules, self._now.rules
        follows = bool(then.allow) and set(then.allow) <= set(recorded.allow)
        allow = _replaced(recorded.allow, then.allow, now.allow) if follows else recorded.allow
        rules = PermissionRules(
            allow=allow,
            ask=_replaced(recorded.ask, then.ask, now.ask),
            deny=_replaced(recorded.deny, then.deny, now.deny),
        )
        return msgspec.structs.replace(settings, permissions=rules, mode=self._mode(settings.mode))

    def _mode(self, recorded: str) -> str:
        """A project that says another mode than it did is followed where the session followed it, and where it is
        stricter."""
        then, now = self._then.mode, self._now.mode
        if then == now or recorded not in STRICTNESS:
            return recorded
        if now and (recorded == then or STRICTNESS.index(now) < STRICTNESS.index(recorded)):
            return now
        return "default" if not now and recorded == then else recorded


def _replaced(recorded: tuple[str, ...], then: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """The rules with those of the project as they are today; a person's own stay."""
    if set(then) == set(now):
        return recorded
    own = [rule for rule in recorded if rule not in then]
    return tuple(dict.fromkeys((*own, *now)))


def _tool_lines(before: ToolSpec | None, after: ToolSpec | None) -> tuple[str, ...]:
    """What differs between two specifications of one tool; nothing where they are the same."""
    if before is None or after is None:
        return ("it was offered, and is not any more",) if after is None else ("it was not offered, and is now",)
    lines: list[str] = []
    for name, of in _FIELDS.items():
        one, other = of(before), of(after)
        if one != other:
            lines += [f"{name}:", *texts(one, other)]
    return tuple(lines[:LINES_MAX])


def _pretty(schema: str) -> str:
    try:
        return msgspec.json.format(schema, indent=2)
    except msgspec.MsgspecError:
        return schema


_FIELDS: Final[dict[str, Callable[[ToolSpec], str]]] = {
    "description": lambda spec: spec.description,
    "schema": lambda spec: _pretty(spec.schema),
    "recovery": lambda spec: f"{spec.recovery}{', writes' if spec.writes else ''}",
}


def _shown(run: ToolRun) -> str:
    from muse.decide import approval

    text = approval.shown(run.tool, run.args).removeprefix("$ ").split("\n")[0]
    return f"`{text[:COMMAND_CHARACTERS_MAX]}{'…' if len(text) > COMMAND_CHARACTERS_MAX else ''}`"


def _is_by_mode(then: Verdict, now: Verdict) -> bool:
    """Whether two modes, and no rule, give the same verdict."""
    return then.decision == now.decision and all(one.rule.startswith("mode ") for one in (then, now))


def _past(verdict: Verdict) -> str:
    if verdict.decision == "ask":
        return f"was asked about ({_rule(verdict)})"
    return f"was {_word(verdict)}"


def _present(verdict: Verdict) -> str:
    return f"now it asks ({_rule(verdict)})" if verdict.decision == "ask" else f"now it is {_word(verdict)}"


def _word(verdict: Verdict) -> str:
    """What the rules say, with their own words where these say it already."""
    word = "allowed" if verdict.decision == "allow" else "denied"
    return verdict.rule if verdict.rule.startswith(f"{word} by ") else f"{word} ({verdict.rule})"


def _rule(verdict: Verdict) -> str:
    return verdict.rule.removeprefix("asked by ")
