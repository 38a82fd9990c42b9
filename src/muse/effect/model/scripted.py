"""A model that follows a script: for the demo, for tests, for trying things out without a key.

A script is a JSON file:

    {"steps": [{"text": "I look first.", "uses": [["shell", {"command": "ls"}]]},
               {"delay_ms": 300, "failure": {"failure": "overloaded", "times": 2}, "text": "Done."}],
     "lanes": [{"when": "count the files", "steps": [{"text": "Three."}]}]}

A step is one response: `text`, `uses` (name and arguments: an object, or a string that is sent as it stands, broken
JSON included), and if wanted `delay_ms` before it, `piece_delay_ms` between the pieces of its text, `reasoning`, and
`failure`: how its first `times` attempts end. Which step is due is counted from the responses that the request holds
already, so the same request always gets the same answer, in any process, after any crash. An agent whose first prompt
holds the text `when` of a lane follows that lane's steps instead. After the last step the answer is `SCRIPT_ENDS`.
A request for a summary is no step: `summary` of the script (or lane) answers it, and the responses that a summary
stands for are counted like those that are there.

The dialect `scripted` sends the request as plain JSON (`scripted/1`). The model is strict: a request in which a tool
use is not answered exactly once, before anything else is said, fails as `invalid`.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from muse.effect.model.failure import excerpt
from muse.effect.protocol import FailureClass, ModelAnswer, ModelFailure, Show
from muse.errors import ConfigError
from muse.event.content import Block, ToolSpec, Usage
from muse.event.conversation import Answered, ModelRequest, Resulted, Said, TranscriptItem
from muse.event.jsontext import array, compose, quote

BUILDER: Final = "scripted/1"

SCRIPT_ENDS: Final = "The script ends here."
"""What the model says when it is asked beyond its last step."""

SUMMARY: Final = "The script is at step {number}."
"""What it says when it is asked for a summary."""

PIECE_CHARS: Final = 12
"""Characters of text that are shown at a time."""

DELAY_MS_MAX: Final = 600_000
"""The longest delay that a script may ask for."""

ITEMS_REMEMBERED: Final = 16_384
"""Transcript items whose JSON text is kept: a session sends the same ones in request after request."""


class Failing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the first `times` attempts at a step end."""

    failure: FailureClass
    times: int = 1
    message: str = "the script says so"
    status: int = 0
    retry_after_ms: int | None = None


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One response of the script."""

    text: str = ""
    uses: tuple[tuple[str, dict[str, object] | str], ...] = ()
    reasoning: str = ""
    delay_ms: int = 0
    piece_delay_ms: int = 0
    failure: Failing | None = None
    ids: tuple[str, ...] = ()
    """Ids of the tool uses; those that are missing are made from the step's number."""

    def arguments(self, index: int) -> str:
        """The exact text of the arguments of the tool use at `index`."""
        given = self.uses[index][1]
        return given if isinstance(given, str) else msgspec.json.encode(given, order="sorted").decode()

    def id(self, number: int, index: int) -> str:
        """The id of the tool use at `index`, when this is the step with that number (from 0)."""
        return self.ids[index] if index < len(self.ids) else f"use_{number}_{index}"


class Lane(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps of the agents whose first prompt holds `when`."""

    when: str
    steps: tuple[Step, ...]
    summary: Step | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that a scripted model says."""

    steps: tuple[Step, ...] = ()
    lanes: tuple[Lane, ...] = ()
    summary: Step | None = None

    def summing_up(self, number: int, first_prompt: str) -> Step:
        """The answer to a request for a summary that holds this many responses."""
        lane = next((lane for lane in self.lanes if lane.when in first_prompt), None)
        given = lane.summary if lane is not None and lane.summary is not None else self.summary
        return given or Step(text=SUMMARY.format(number=number))

    def step(self, number: int, first_prompt: str) -> Step:
        """The step with that number (from 0) of the agent whose first prompt is given."""
        steps = next((lane.steps for lane in self.lanes if lane.when in first_prompt), self.steps)
        return steps[number] if number < len(steps) else Step(text=SCRIPT_ENDS)


def load_script(path: Path) -> Script:
    """The script in a file. Raises ConfigError with what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script, strict=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL, or half a surrogate pair, in the path
        why = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise ConfigError(
            f"cannot read the script {path}: {why}", hint="give the path of a script: -m scripted/PATH.json"
        ) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{path} is no script: {error}", hint="The format stands in docs/models.md.") from error


def build(request: ModelRequest) -> bytes:
    """The request as JSON, one member for each of its fields. Pure: equal requests give equal bytes."""
    return compose(
        {
            "builder": quote(BUILDER),
            "model": quote(request.model),
            "system": quote(request.system),
            "tools": array([_tool(spec) for spec in request.tools]),
            "items": array([_item(item) for item in request.items]),
            "output_tokens_max": str(request.output_tokens_max),
        }
    ).encode()


def _tool(spec: ToolSpec) -> str:
    return compose({"name": quote(spec.name), "description": quote(spec.description), "schema": quote(spec.schema)})


@lru_cache(maxsize=ITEMS_REMEMBERED)
def _item(item: TranscriptItem) -> str:
    match item:
        case Said():
            fields = {"item": '"said"', "source": quote(item.source), "text": quote(item.text)}
            return compose(fields | ({"answers": str(item.answers)} if item.answers else {}))
        case Answered():
            return compose({"item": '"answered"', "blocks": array([_block(block) for block in item.blocks])})
        case Resulted():
            error = "true" if item.error else "false"
            return compose({"item": '"resulted"', "use": quote(item.use), "text": quote(item.text), "error": error})


def _block(block: Block) -> str:
    fields = {"kind": block.kind, "text": block.text, "id": block.id, "name": block.name, "args": block.args}
    return compose({key: quote(value) for key, value in (fields | {"raw": block.raw}).items()})


class _SentBlock(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    text: str
    id: str


class _SentItem(msgspec.Struct, frozen=True, kw_only=True):
    item: str
    text: str = ""
    use: str = ""
    source: str = ""
    answers: int = 0
    blocks: tuple[_SentBlock, ...] = ()


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    builder: str
    items: tuple[_SentItem, ...]


class ScriptedModel:
    """A `Model` that says what its script says."""

    def __init__(self, script: Script | Sequence[Step]) -> None:
        self._script = script if isinstance(script, Script) else Script(steps=tuple(script))

    async def ask(self, request: bytes, call: str, attempt: int, show: Show) -> ModelAnswer | ModelFailure:
        """The step that is due for this request; see the module's docstring."""
        try:
            sent = msgspec.json.decode(request, type=_Sent)
        except msgspec.MsgspecError as error:
            return ModelFailure(failure="invalid", message=f"no request of {BUILDER}: {error}", status=400)
        if wrong := _wrong(sent):
            return ModelFailure(failure="invalid", message=wrong, status=400)
        number = sum(1 if item.item == "answered" else item.answers for item in sent.items)
        first = next((item.text for item in sent.items if item.item == "said"), "")
        wished = bool(sent.items) and sent.items[-1].source == "summary"
        step = self._script.summing_up(number, first) if wished else self._script.step(number, first)
        return await self._answer(step, number, attempt, show)

    async def _answer(self, step: Step, number: int, attempt: int, show: Show) -> ModelAnswer | ModelFailure:
        await _wait(step.delay_ms)
        failing = step.failure if step.failure and attempt <= step.failure.times else None
        text = step.text[: len(step.text) // 2] if failing else step.text
        pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
        for piece in pieces if not failing or failing.failure == "cut" else []:
            show(piece)
            await _wait(step.piece_delay_ms)
        if failing:
            return ModelFailure(
                failure=failing.failure, message=excerpt(failing.message), status=failing.status,
                retry_after_ms=failing.retry_after_ms, partial=text if failing.failure == "cut" else "",
                duration_ms=step.delay_ms,
            )  # fmt: skip
        return answer_of(step, number)


def answer_of(step: Step, number: int) -> ModelAnswer:
    """The whole answer of a step; its raw bytes are the step as JSON."""
    blocks = [Block(kind="reasoning", text=step.reasoning)] if step.reasoning else []
    blocks += [Block(kind="text", text=step.text)] if step.text else []
    for index, (name, _) in enumerate(step.uses):
        blocks.append(Block(kind="tool_use", id=step.id(number, index), name=name, args=step.arguments(index)))
    return ModelAnswer(
        blocks=tuple(blocks), usage=Usage(output=sum(len(block.text + block.args) for block in blocks) // 4),
        stop="tool_use" if step.uses else "end_turn", stop_raw="scripted", model="scripted",
        response_id=f"scripted_{number}", raw=msgspec.json.encode(step), duration_ms=step.delay_ms,
    )  # fmt: skip


async def _wait(milliseconds: int) -> None:
    from anyio import sleep

    await sleep(min(max(milliseconds, 0), DELAY_MS_MAX) / 1000)


def _wrong(sent: _Sent) -> str:
    """What is wrong with the pairing of tool uses and results; "" if nothing."""
    if sent.builder != BUILDER:
        return f"this model takes {BUILDER}, not {sent.builder}"
    open_uses: set[str] = set()
    for item in sent.items:
        if item.item == "resulted":
            if item.use not in open_uses:
                return f"a result for {item.use!r}, which is no tool use without a result"
            open_uses.remove(item.use)
        elif open_uses:
            return f"the tool use {min(open_uses)!r} has no result before the next message"
        if item.item == "answered":
            uses = [block.id for block in item.blocks if block.kind == "tool_use"]
            open_uses = set(uses)
            if len(open_uses) != len(uses):
                return "two tool uses of one response have the same id"
    return f"the tool use {min(open_uses)!r} has no result" if open_uses else ""
