"""Known secrets: not in texts, not in what is kept, and never lost from files."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.effect.protocol import Workspace
from muse.effect.runner import Runner
from muse.effect.tool import builtin_tools
from muse.effect.tool.masking import KnownSecrets
from muse.effect.tool.output import HEAD_BYTES_MAX, excerpt_file
from muse.event.content import Git, Instruction, Origin
from muse.event.kinds import COMMANDS, KINDS, ApprovalDecided, CancelRequested, UserPrompted
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio

CANARY = "sk-canary-0123456789"
OTHER = "héslo-canary"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "MODEL_API_KEY": CANARY,
    "DB_PASSWORD": OTHER,
    "SSH_KEY": "/home/me/.ssh/id",
    "A_KEY": "1",
}


@pytest.fixture
def tools(runner: Runner, workspace: Workspace) -> dict[str, Harness]:
    async def read_output(call: str, offset: int, limit: int) -> bytes | None:
        return f"kept {CANARY}".encode()

    built = builtin_tools(runner, read_output=read_output, environment=ENVIRONMENT)
    return {name: Harness(tool, workspace) for name, tool in built.items()}


def kept(tools: dict[str, Harness]) -> bytes:
    return b"".join(data for tool in tools.values() for data in tool.blobs.values())


async def test_no_text_holds_a_known_secret(tools: dict[str, Harness], root: Path) -> None:
    (root / "a").write_text(f"key = {CANARY}\nother = {OTHER}\npath = /home/me/.ssh/id 1\n")
    masked = "key = [secret MODEL_API_KEY]"
    assert (await tools["read"].do(path="a")).text == (
        f"     1\t{masked}\n     2\tother = [secret DB_PASSWORD]\n     3\tpath = /home/me/.ssh/id 1"
    )
    assert (await tools["grep"].do(pattern="key")).text == f"a:1:{masked}"
    assert (await tools["output"].do(call="main/1")).text.startswith("kept [secret MODEL_API_KEY]\n")
    assert (await tools["shell"].do(command="head -1 a")).text == f"{masked}\nexit code 0"
    assert masked in (await tools["edit"].do(path="a", old="key  =  " + CANARY, new="x")).text
    assert "".join(tools["shell"].shown) == f"{masked}\n"


async def test_the_kept_output_holds_placeholders_and_all_the_rest(tools: dict[str, Harness]) -> None:
    result = await tools["shell"].do(command=f"for n in $(seq 3000); do echo $n {CANARY}; done")
    assert result.output is not None
    expected = "".join(f"{n} [secret MODEL_API_KEY]\n" for n in range(1, 3001))
    assert tools["shell"].blobs[result.output.blob] == expected.encode()
    assert CANARY[:12] not in result.text


@pytest.mark.parametrize("shift", range(len(CANARY) + 1))
def test_a_cut_leaves_no_part_of_a_secret(tmp_path: Path, shift: int) -> None:
    secrets = KnownSecrets({"K": CANARY})
    spool = tmp_path / "output"
    spool.write_bytes(b"." * (HEAD_BYTES_MAX - shift) + (CANARY * 3000).encode())
    text = excerpt_file(spool, "more", None, secrets).text
    assert set(text.replace("[secret K]", "").partition("[... ")[0]) <= set(".\n")
    assert text.partition(" ...]\n")[2].replace("[secret K]", "") == ""


@given(
    pieces=st.lists(st.sampled_from([CANARY, CANARY[:7], CANARY[5:], OTHER, "x", "\n"]), max_size=12),
    chunk=st.integers(1, 50),
)
@settings(max_examples=100, deadline=None)
def test_a_masked_copy_is_what_masking_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], chunk: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    secrets = KnownSecrets({"K": CANARY, "P": OTHER})
    data = "".join(pieces).encode()
    (folder / "source").write_bytes(data)
    secrets.copy_masked(folder / "source", folder / "copy", len(data), chunk)
    expected = data.replace(CANARY.encode(), b"[secret K]").replace(OTHER.encode(), b"[secret P]")
    assert (folder / "copy").read_bytes() == expected
    assert secrets.is_in_file(folder / "source", len(data), chunk) == (expected != data)
    assert (folder / "copy").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_holds_a_secret_is_withheld_from_the_log_and_keeps_it(
    tools: dict[str, Harness], root: Path
) -> None:
    (root / "a").write_text(f"key = {CANARY}\nport = 1\n")
    result = await tools["edit"].do(path="a", old="port = 1", new="port = 2")
    assert (root / "a").read_text() == f"key = {CANARY}\nport = 2\n"
    change = result.changes[0]
    assert (change.before, change.after, change.note) == (None, None, "withheld: the content holds a known secret")
    assert change.before_mode == change.after_mode != 0
    assert CANARY.encode() not in kept(tools)


async def test_a_model_that_gives_placeholders_back_does_not_destroy_the_secret(
    tools: dict[str, Harness], root: Path
) -> None:
    (root / "a").write_text(f"key = {CANARY}\n")
    shown = (await tools["read"].do(path="a")).text.partition("\t")[2]
    await tools["edit"].do(path="a", old=shown, new=f"# mine\n{shown}")
    assert (root / "a").read_text() == f"# mine\nkey = {CANARY}\n"
    await tools["write"].do(path="a", content=f"{shown}\n")
    assert (root / "a").read_text() == f"key = {CANARY}\n"


async def test_a_placeholder_brings_no_secret_into_a_file_that_has_none(tools: dict[str, Harness], root: Path) -> None:
    await tools["write"].do(path="b", content="[secret MODEL_API_KEY]")
    assert (root / "b").read_text() == "[secret MODEL_API_KEY]"


SECRETS = KnownSecrets({"K": CANARY})
SAID = f"it is {CANARY}, twice {CANARY}"
MASKED = "it is [secret K], twice [secret K]"
WORDS = {
    "agent.steered": "text", "agent.paused": "why", "agent.wanted": "task name role", "approval.decided": "note",
    "cancel.requested": "why", "note.added": "text", "question.answered": "text", "user.prompted": "text",
}  # fmt: skip
"""What a person may say in each command; the others hold ids, numbers, choices and rules alone."""


def test_the_words_of_a_body_are_masked_and_nothing_else_of_it() -> None:
    here = Origin(pid=7, user=CANARY)
    assert SECRETS.masked(UserPrompted(text=SAID, delivery="steer", origin=here)) == UserPrompted(
        text=MASKED, delivery="steer", origin=here
    )
    call = f"main/{CANARY}"
    assert SECRETS.masked(CancelRequested(target="call", call=call, why=SAID)) == CancelRequested(
        target="call", call=call, why=MASKED
    )
    decided = ApprovalDecided(
        call="main/1", decision="allow", by="person", rule=SAID, note=SAID, remember=SAID, shown_sha256="ab" * 32
    )
    assert SECRETS.masked(decided) == ApprovalDecided(
        call="main/1", decision="allow", by="person", rule=SAID, note=MASKED, remember=SAID, shown_sha256="ab" * 32
    )
    assert SECRETS.masked(Git(root=SAID, branch=SAID)) == Git(root=SAID, branch=MASKED)
    assert SECRETS.masked(Instruction(path=SAID, text=SAID)) == Instruction(path=SAID, text=MASKED)


def test_every_word_of_every_command_is_masked() -> None:
    masked = {}
    for kind in COMMANDS:
        body = KINDS[kind].body
        texts = [field.name for field in msgspec.structs.fields(body) if field.type is str]
        rest = {field.name: 0 for field in msgspec.structs.fields(body) if field.required and field.type is not str}
        found = SECRETS.masked(body(**rest, **dict.fromkeys(texts, SAID)))
        masked[kind] = " ".join(name for name in texts if getattr(found, name) == MASKED)
    assert {kind: names for kind, names in masked.items() if names} == WORDS


def test_a_variable_is_known_by_what_it_is_for_as_well_as_by_its_name() -> None:
    environment = {"SHOP_ACCESS": CANARY, "DB_PASSWORD": OTHER, "EDITOR": "an-editor"}
    known = KnownSecrets.of_environment(environment, {"SHOP_ACCESS"})
    assert known.mask(f"{CANARY} {OTHER} an-editor") == "[secret SHOP_ACCESS] [secret DB_PASSWORD] an-editor"
