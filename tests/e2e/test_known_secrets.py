"""The provider's key, said in every way a person and a repository have: it is in no file, and in no request."""

import pytest

from muse.effect.model.scripted import Step
from muse.testing.wire import Received
from tests.e2e.rig import KEY, Rig
from tests.e2e.test_same_lines import watched
from tests.e2e.test_wire import SERVERS, assert_no_key_in_files

RUN = ("shell", {"command": "echo ran >> ran.txt"})
STEPS = [Step(text="First.", uses=(RUN,)), Step(text="Second.", uses=(RUN,)), Step(text="Done.")]


def assert_only_placeholders(requests: list[Received], variable: str) -> None:
    assert all(KEY.encode() not in request.body for request in requests)
    last = requests[-1].body.decode()
    for words in ("branch fix-", "rule: ", "task: ", "steer: ", "note: ", "more: "):
        assert f"{words}[secret {variable}]" in last, words


@pytest.mark.parametrize(("dialect", "variable"), [("anthropic", "SHOP_KEY"), ("openai", "SHOP_ACCESS")])
def test_a_key_that_is_said_reaches_neither_the_log_nor_the_model(rig: Rig, dialect: str, variable: str) -> None:
    """The second variable is not named like a secret: it is one because the provider's key is in it."""
    rig.environment.pop("SHOP_KEY")
    rig.environment[variable] = KEY
    rig.git("checkout", "-q", "-b", f"fix-{KEY}")
    (rig.workspace / "AGENTS.md").write_text(f"rule: {KEY}\n")
    with SERVERS[dialect](STEPS) as server:
        rig.settings(
            f'model = "shop/some-model"\n[providers.shop]\ndialect = "{dialect}"\n'
            f'base_url = "{server.base_url}"\napi_key_env = "{variable}"\n'
        )
        with watched(rig, "exec", "--json", "--name", f"for-{KEY}", f"task: {KEY}") as run:
            asked = run.until("approval.requested")
            steer = ("steer", "last", f"steer: {KEY}", "--id", "one")
            said = [rig.muse(*steer) for _ in range(2)]
            assert said[0].stdout == said[1].stdout != "", said[1].stderr
            assert rig.muse("deny", f"last@{asked['seq']}", "--note", f"note: {KEY}").returncode == 0
            run.until("approval.requested")
            assert rig.muse("cancel", "last", "--why", f"why: {KEY}").returncode == 0
            assert run.end() == 130, run.errors
        again = rig.muse("resume", "last", f"more: {KEY}")
        assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
    assert server.violations == []
    assert_only_placeholders(server.requests, variable)
    assert_no_key_in_files(rig)
    opened = rig.of_type("session.opened")[0]["body"]
    assert opened["name"] == f"for-[secret {variable}]"
    (cancelled,) = rig.of_type("cancel.requested")
    assert cancelled["body"]["why"] == f"why: [secret {variable}]"
    assert len(rig.of_type("agent.steered")) == 1
    rig.verify()


def test_a_key_stays_in_what_the_model_itself_asks_for(rig: Rig) -> None:
    """The input of a call is what the model sent, byte for byte; what the call answers is masked."""
    line = f"secret = {KEY}"
    steps = [
        {"uses": [["write", {"path": "a.txt", "content": f"{line}\n"}]]},
        {"uses": [["read", {"path": "a.txt"}]]},
        {"text": "Done."},
    ]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "write it")
    assert done.returncode == 0, done.stderr
    assert rig.read("a.txt") == f"{line}\n"
    assert line in rig.of_type("tool.started")[0]["body"]["args"]
    assert "secret = [secret SHOP_KEY]" in rig.of_type("tool.finished")[1]["body"]["text"]
