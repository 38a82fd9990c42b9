"""Budgets, long waits and fallback models as a user meets them: the installed command against real model servers."""

from datetime import UTC, datetime, timedelta

import pytest

from muse.effect.model.scripted import Failing, Lane, Script, Step
from muse.testing.wire import AnthropicServer, OpenAIServer, Received, Trouble
from tests.e2e.fake_clock import FakeClock
from tests.e2e.rig import Rig

TASK = [
    Step(text="I look.", reasoning="hm", uses=(("shell", {"command": "echo looked >> steps.txt"}),)),
    Step(text="It is done."),
]
READ = ("input", "cache_read", "cache_write")
LONG = (("retry-after", "2"),)


def busy(status: int, headers: tuple[tuple[str, str], ...] = ()) -> Trouble:
    error = "rate_limit_error" if status == 429 else "overloaded_error"
    return Trouble("status", status=status, headers=headers, error=error)


def test_a_budget_stops_a_session_with_code_5_and_the_command_that_it_names_goes_on(rig: Rig) -> None:
    with AnthropicServer(TASK) as server:
        rig.provider(
            "anthropic", server.base_url, '[budget]\ncalls = 1\n[models."shop/some-model"]\ninput = 3\noutput = 15'
        )
        done = rig.muse("exec", "--yolo", "look", "--budget", "cost=5")
        assert (done.returncode, done.stdout) == (5, "")
        (advice,) = [line.strip() for line in done.stderr.splitlines() if "with more room" in line]
        command = advice.partition("muse ")[2].split()
        assert command[2:] == ["--budget", "calls=+1"]
        again = rig.muse("resume")
        assert again.returncode == 5, "the log's budget holds"
        on = rig.muse(*command)
    assert (on.returncode, on.stdout) == (0, "It is done.\n"), on.stderr
    assert rig.read("steps.txt") == "looked\n"
    for event in rig.of_type("model.responded"):
        used = event["body"]["usage"]
        paid = 3 * sum(used.get(key, 0) for key in READ) + 15 * used["output"]
        assert used["cost_microusd"] == paid > 0
    assert len(rig.of_type("budget.reached")) == 2
    rig.verify()


def test_a_budget_of_money_without_a_price_is_refused_before_anything_begins(rig: Rig) -> None:
    with AnthropicServer(TASK) as server:
        rig.provider("anthropic", server.base_url)
        done = rig.muse("exec", "--yolo", "look", "--budget", "cost=5")
    assert done.returncode == 2
    assert '[models."shop/some-model"]' in done.stderr
    assert rig.logs() == []


def test_a_budget_of_time_ends_a_session_that_takes_longer(rig: Rig) -> None:
    steps = [{"text": "a", "uses": [["shell", {"command": "sleep 1.2"}]]}, {"text": "never said"}]
    done = rig.muse("exec", "--yolo", "-m", rig.script(steps), "wait", "--budget", "time=1s")
    assert (done.returncode, done.stdout) == (5, "")
    (reached,) = rig.of_type("budget.reached")
    assert (reached["body"]["limit"], reached["body"]["value"]) == ("seconds", 1)
    rig.verify()


class Dated(AnthropicServer):
    """Says a date instead of a number of seconds, counted from when it is asked, however long that took."""

    def trouble(self, received: Received) -> Trouble | None:
        if super().trouble(received) is None:
            return None
        date = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return busy(
            429, (("anthropic-ratelimit-requests-remaining", "0"), ("anthropic-ratelimit-requests-reset", date))
        )


@pytest.mark.parametrize("provider", [AnthropicServer, Dated])
def test_a_long_wait_parks_until_the_providers_date_over_a_kill(rig: Rig, provider: type[AnthropicServer]) -> None:
    with provider(TASK, {1: [busy(429, LONG)]}) as server:
        rig.provider("anthropic", server.base_url, "park_after = 1\nmax_model_attempts = 1")
        host = rig.start("exec", "--yolo", "look")
        rig.wait_for(lambda: rig.logs() and rig.of_type("timer.set"))
        (parked,) = rig.of_type("model.failed")
        until = parked["body"]["retry_until"]
        host.kill()
        host.wait()
        asked = len(server.requests)
        done = rig.muse("resume")
    assert (done.returncode, done.stdout) == (0, "It is done.\n"), done.stderr
    assert len(server.requests) == asked + 1
    (timer,) = rig.of_type("timer.set")
    assert timer["body"]["until"] == until
    sent = [event for event in rig.of_type("model.requested") if event["body"]["call"] == parked["body"]["call"]]
    assert sent[-1]["time"] >= until, "it does not ask before the date"
    assert rig.read("steps.txt") == "looked\n"
    rig.verify()


def test_who_was_parked_is_not_parked_for_so_long_again_by_a_restart(rig: Rig) -> None:
    """An hour is to be waited, and is over while nobody runs the session: at its resume the model is asked at once."""
    with AnthropicServer(TASK, {1: [busy(429, (("retry-after", "3600"),))]}) as server:
        rig.provider("anthropic", server.base_url, "park_after = 1")
        host = rig.start("exec", "--yolo", "look")
        rig.wait_for(lambda: rig.logs() and rig.of_type("timer.set"))
        host.kill()
        host.wait()
        FakeClock(rig, "python").shift(3700)
        done = rig.muse("resume")
    assert (done.returncode, done.stdout) == (0, "It is done.\n"), done.stderr
    assert len(rig.of_type("timer.set")) == len(rig.of_type("timer.fired")) == 1


def test_a_fallback_of_another_dialect_goes_on_with_the_same_call(rig: Rig) -> None:
    with AnthropicServer(TASK, {1: [busy(529)] * 9}) as first, OpenAIServer(TASK) as second:
        rig.provider("anthropic", first.base_url, "max_model_attempts = 2")
        with (rig.home / ".config" / "muse" / "config.toml").open("a") as file:
            file.write(
                f'[providers.spare]\ndialect = "openai"\nbase_url = "{second.base_url}"\napi_key_env = "SHOP_KEY"\n'
            )
        done = rig.muse("exec", "--yolo", "look", "--fallback-model", "spare/other-model")
    assert (done.returncode, done.stdout) == (0, "It is done.\n"), done.stderr
    assert second.violations == []
    asked = [(e["body"]["call"], e["body"]["attempt"], e["body"]["provider"]) for e in rig.of_type("model.requested")]
    assert asked == [("main/1", 1, "shop"), ("main/3", 1, "shop"), ("main/3", 2, "shop"), ("main/3", 3, "spare")]
    (changed,) = rig.of_type("model.changed")
    assert (changed["body"]["reason"], changed["body"]["model"]) == ("fallback", "other-model")
    assert b"I look." in second.requests[-1].body
    assert b"signature" not in second.requests[-1].body
    rig.verify()


def test_a_parent_is_told_of_children_whose_model_cannot_be_had_and_goes_on(rig: Rig) -> None:
    """One provider has no such key, the model that a role file names is not there: neither ends the session."""
    agents = [{"task": "look far", "model": "far/big"}, {"task": "look near", "role": "scout"}]
    never, keyless = Failing(failure="invalid", status=404, times=99), Failing(failure="auth", times=99)
    script = Script(
        steps=(Step(text="Go.", uses=(("spawn", {"agents": agents}),)), Step(text="I do it myself.")),
        lanes=(Lane(when="look near", steps=(Step(text="never said", failure=never),)),),
    )
    role = rig.workspace / ".muse" / "agents" / "scout.md"
    role.parent.mkdir(parents=True)
    role.write_text("---\nmodel: no-such-model\n---\nYou look.\n")
    with AnthropicServer(script) as near, OpenAIServer([Step(failure=keyless)]) as far:
        rig.provider("anthropic", near.base_url)
        with (rig.home / ".config" / "muse" / "config.toml").open("a") as file:
            file.write(f'[providers.far]\ndialect = "openai"\nbase_url = "{far.base_url}"\napi_key_env = "SHOP_KEY"\n')
        done = rig.muse("exec", "--yolo", "look")
    assert (done.returncode, done.stdout) == (0, "I do it myself.\n"), done.stderr
    ended = {e["agent"]: e["body"] for e in rig.of_type("agent.finished")}
    assert {body["outcome"] for body in ended.values()} == {"failed"}
    assert "its model far/big gave no answer: auth" in ended["main.1"]["text"]
    assert f"its model shop/no-such-model, which the role scout ({role}) names," in ended["main.2"]["text"]
    told = rig.of_type("tool.finished")[0]["body"]["text"]
    assert all(body["text"] in told for body in ended.values())
    rig.verify()


def test_an_attempt_that_was_cut_counts_with_what_the_provider_had_told(rig: Rig) -> None:
    with AnthropicServer(TASK, {0: [Trouble("cut", at=0.9)]}) as server:
        rig.provider("anthropic", server.base_url)
        done = rig.muse("exec", "--yolo", "look")
    assert done.returncode == 0, done.stderr
    (failed,) = rig.of_type("model.failed")
    (first, *_) = rig.of_type("model.responded")
    read = [sum(e["body"]["usage"].get(key, 0) for key in READ) for e in (failed, first)]
    assert read[0] == read[1] > 0
    rig.verify()


def test_a_session_goes_on_at_no_other_address_than_the_one_that_was_given_for_it(rig: Rig) -> None:
    with AnthropicServer(TASK) as meant, AnthropicServer(TASK) as other:
        rig.provider("anthropic", other.base_url)
        here = ("-c", f"providers.shop.base_url={meant.base_url}")
        killed = rig.muse("exec", "--yolo", "look", *here, extra={"MUSE_FAILPOINT": "after_append:2"})
        assert killed.returncode == -9
        for refused in (rig.muse("resume"), rig.muse("up")):
            assert refused.returncode == 2
            assert f"shop at {meant.base_url}, given with -c" in refused.stdout + refused.stderr
        assert other.requests == []
        assert rig.muse("resume", *here).returncode == 0
        assert rig.muse("resume", "last", "more", "-m", "shop/some-model").returncode == 0, "chosen anew"
        assert other.requests != []
        assert meant.violations == other.violations == []
    rig.verify()
