"""What people write of budgets and prices, and what a session records of it."""

from pathlib import Path

import msgspec
import pytest

from muse import app, config
from muse.app.budgets import facts, merged, raised, with_budget, with_prices
from muse.app.models import Clients, client_of, usable_providers
from muse.app.settings import settings_again, settings_of
from muse.budget import amount, part, price, said, written
from muse.config import Agents, Budget, Config, KnownModel, Limits, Loaded, Provider
from muse.decide.context import ref_of
from muse.effect.model.scripted import ScriptedModel
from muse.errors import ConfigError, MissingKey, UsageError
from muse.event.content import Limit, ModelRef, Settings, Usage

SETTINGS = Settings(provider="ollama", dialect="openai", model="m")


def ref(provider: str, dialect: str, model: str) -> ModelRef:
    return ModelRef(provider=provider, dialect=dialect, model=model)


@pytest.mark.parametrize(
    ("key", "given", "found"),
    [
        ("tokens", "2M", 2_000_000), ("tokens", 2_000_000, 2_000_000), ("tokens", "1.5k", 1500), ("turns", "20", 20),
        ("tokens", "2_000", 2000), ("cost", "4.50", 4_500_000), ("cost", 4.5, 4_500_000), ("cost", "$0.000001", 1),
        ("cost", 0.1, 100_000), ("time", "8h", 28_800), ("time", "1h30m", 5400), ("time", "2d", 172_800),
        ("time", 90, 90), ("calls", 0, 0),
    ],
)  # fmt: skip
def test_amounts_are_read_exactly(key: str, given: object, found: int) -> None:
    assert amount(key, given) == found
    assert amount(key, written(key, found)) == found


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("tokens", "many"), ("tokens", "-1"), ("tokens", "0.5"), ("tokens", ""), ("tokens", "inf"), ("tokens", "1e99"),
        ("tokens", True), ("cost", "0.0000001"), ("cost", "nan"), ("cost", "-1"), ("cost", "five"), ("time", ""),
        ("time", "8 hours"), ("time", "h"), ("turns", "1x"), ("tokens", "1e999999"),
        ("tokens", "1e9999999"), ("cost", "1e999999"), ("cost", "1e-9999999"),
    ],
)  # fmt: skip
def test_what_is_no_amount_is_refused_with_an_example(key: str, given: object) -> None:
    with pytest.raises(ConfigError) as caught:
        amount(key, given)
    assert "for example" in caught.value.hint


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("cost_microusd", 12_345, "cost $0.012345"), ("cost_microusd", 2_000_000, "cost $2.00"),
        ("cost_microusd", 1_234_500_000, "cost $1,234.50"), ("seconds", 5400, "time 1h30m"), ("seconds", 0, "time 0s"),
        ("seconds", 90_061, "time 1d1h1m1s"), ("tokens", 12_000, "tokens 12,000"), ("model_calls", 7, "model calls 7"),
    ],
)  # fmt: skip
def test_what_was_counted_is_said_in_dollars_and_hours_and_never_by_a_raw_key(
    what: str, value: int, words: str
) -> None:
    assert " ".join(said(what, value)) == words


def test_wall_is_another_name_of_time_on_the_command_line_and_in_files(tmp_path: Path) -> None:
    plain = Settings(provider="p", dialect="d", model="m")
    assert with_budget(plain, ["wall=1h,agent.wall=5m"]) == with_budget(plain, ["time=1h,agent.time=5m"])
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    file = tmp_path / "muse" / "config.toml"
    file.parent.mkdir()
    file.write_text('[budget]\nwall = "8h"\n[budget.tree]\nwall = "1h"\n')
    found = config.load(tmp_path / "nowhere", (), home).budget
    assert (found.time, found.tree.time) == ("8h", "1h")
    assert config.load(tmp_path / "nowhere", ("budget.wall=2h",), home).budget.time == "2h"
    project = tmp_path / "shop" / ".muse" / "config.toml"
    project.parent.mkdir(parents=True)
    project.write_text('[budget]\nwall = "9h"\n')
    assert config.read(tmp_path / "shop", (), home).ignored == ("budget.time",), "a repository may only lower it"
    file.write_text('[budget]\nwall = "8h"\ntime = "9h"\n')
    with pytest.raises(ConfigError, match="two names of one budget"):
        config.load(tmp_path / "nowhere", (), home)


@pytest.mark.parametrize("given", ["", "x", "-3", "nan", "0.0000001", "1e999999", "1e-9999999", True])
def test_what_is_no_price_is_refused(given: object) -> None:
    with pytest.raises(ConfigError):
        price(given)


@pytest.mark.parametrize("text", ["tokens", "tokenz=5", "team.tokens=5", "=5", ".tokens=5"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        part(text)


def test_flags_set_budgets_of_every_scope_and_take_them_away() -> None:
    found = with_budget(SETTINGS, ["tokens=2M,cost=5", "agent.calls=10", "tree.time=8h", "cost=0"])
    assert found.limits == (
        Limit(scope="session", what="tokens", value=2_000_000), Limit(scope="agent", what="calls", value=10),
        Limit(scope="tree", what="seconds", value=28_800),
    )  # fmt: skip


def test_more_is_added_to_the_budget_that_there_is_or_to_what_was_used() -> None:
    state = app.Session(session="s", usage=Usage(input=70, output=30))
    old = with_budget(SETTINGS, ["tokens=1k"])
    assert with_budget(old, ["tokens=+1M"], state).limits[0].value == 1_001_000
    assert with_budget(SETTINGS, ["tokens=+1M"], state).limits[0].value == 1_000_100
    with pytest.raises(UsageError):
        with_budget(SETTINGS, ["agent.tokens=+1M"], state)


@pytest.mark.parametrize(
    ("scope", "value", "more"), [("session", 100, "tokens=+100"), ("tree", 101, "tree.tokens=+200")]
)
def test_the_command_that_is_named_gives_at_least_as_much_room_again(scope: str, value: int, more: str) -> None:
    limits = with_budget(SETTINGS, ["tokens=100,tree.tokens=100"]).limits
    assert raised("tokens", scope, limits, value) == more
    after = with_budget(msgspec.structs.replace(SETTINGS, limits=limits), [more]).limits
    assert next(one.value for one in after if one.scope == scope) - value >= 99


def test_nothing_is_named_for_a_limit_that_is_no_budget() -> None:
    assert raised("model_calls", "agent", (), 1000) == ""


def test_a_settings_file_and_what_a_resumed_session_has() -> None:
    config = Config(model="ollama/m", budget=Budget(tokens="2M", agent=Limits(calls=5)))
    first = settings_of(config)
    assert [(one.scope, one.what, one.value) for one in first.limits] == [
        ("session", "tokens", 2_000_000), ("agent", "calls", 5),
    ]  # fmt: skip
    state = app.Session(session="s", settings=first)
    other = Config(model="ollama/m", budget=Budget(tokens="9M"))
    assert settings_again(state, Loaded(other)).limits == first.limits, "the log's budgets hold"
    again = settings_again(state, Loaded(other, given=("budget",)))
    assert merged(first.limits, ()) == first.limits
    assert [one.value for one in again.limits] == [9_000_000, 5]


def test_how_many_agents_may_work_stays_as_the_log_has_it_unless_it_is_said_anew() -> None:
    first = settings_of(Config(model="ollama/m", agents=Agents(parallel=2, depth=1, total=9)))
    assert (first.agents_parallel_max, first.agents_depth_max, first.agents_total_max) == (2, 1, 9)
    state, other = app.Session(session="s", settings=first), Config(model="ollama/m", agents=Agents(parallel=5))
    assert settings_again(state, Loaded(other)).agents_parallel_max == 2
    assert settings_again(state, Loaded(other, given=("agents",))).agents_parallel_max == 5


def test_prices_are_whole_numbers_and_a_cache_costs_as_much_as_input_where_nothing_is_said() -> None:
    models = {"a/m": KnownModel(context=1000, input="0.25", output=1.5), "b/m": KnownModel(input=3, cache_read="0.30")}
    first, second = facts(Config(models=models), ())
    assert (first.input_microusd, first.output_microusd, first.context_tokens) == (250_000, 1_500_000, 1000)
    assert first.cache_read_microusd == first.cache_write_microusd == 250_000
    assert (second.cache_read_microusd, second.cache_write_microusd) == (300_000, 3_000_000)


def test_a_budget_of_money_needs_the_price_of_the_model_and_of_its_fallbacks() -> None:
    config = Config(model="openai/m", fallback_models=("anthropic/c",), budget=Budget(cost=5))
    settings = settings_of(config)
    with pytest.raises(ConfigError) as caught:
        with_prices(config, settings)
    assert "openai/m" in str(caught.value)
    config = msgspec.structs.replace(config, models={"openai/m": KnownModel(input=1)})
    with pytest.raises(ConfigError) as caught:
        with_prices(config, settings_of(config))
    assert "anthropic/c" in str(caught.value)
    free = Config(model="ollama/m", fallback_models=("openrouter/x/y",), budget=Budget(cost=5))
    settings = with_prices(free, settings_of(free))
    state = app.Session(session="s", settings=settings)
    assert ref_of(state, "vllm/big") == ref("vllm", "openai", "big")
    assert ref_of(state, "openrouter/a/b") is not None


def test_under_a_budget_of_money_no_agent_is_given_a_model_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    config = Config(model="ollama/m", budget=Budget(cost=5), models={"openai/known": KnownModel(input=1)})
    state = app.Session(session="s", settings=with_prices(config, settings_of(config)))
    assert ref_of(state, "openai/known") == ref("openai", "openai", "known")
    assert ref_of(state, "openai/unknown") is None


def test_agents_may_be_given_models_of_providers_whose_key_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE_KEY", "k" * 20)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    url = "http://127.0.0.1:1/v1"
    providers = {
        "here": Provider(dialect="openai", base_url=url, api_key_env="HERE_KEY"),
        "gone": Provider(dialect="openai", base_url=url, api_key_env="GONE_KEY"),
        "theirs": Provider(dialect="openai", base_url=url, chosen_only=True),
    }
    config = Config(model="theirs/m", providers=providers)
    names = set(usable_providers(config))
    assert {"here", "ollama"} <= names
    assert not names & {"gone", "theirs", "anthropic"}
    assert ref("here", "openai", "") in settings_of(config).models


def test_fallbacks_are_models_of_the_same_provider_where_none_is_named() -> None:
    config = Config(model="ollama/m", fallback_models=("n", "vllm/big"))
    assert settings_of(config).fallbacks == (ref("ollama", "openai", "n"), ref("vllm", "openai", "big"))
    found = app.limited(config, settings_of(config), (), "lmstudio/x, y")
    assert found.fallbacks == (ref("lmstudio", "openai", "x"), ref("ollama", "openai", "y"))
    with pytest.raises(ConfigError):
        app.limited(config, settings_of(config), (), "nobody/x")


def test_a_fallback_without_a_key_is_said_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = Config(model="ollama/m", fallback_models=("openai/n",))
    with pytest.raises(MissingKey):
        app.model_of(config, settings_of(config))


def test_a_provider_has_one_client_for_all_its_models_made_when_it_is_first_asked() -> None:
    own, script = ref("scripted", "scripted", "/s.json"), ScriptedModel([])
    clients = Clients(Config(), own, script)
    assert clients(own) is script
    local = clients(ref("ollama", "openai", "a"))
    assert clients(ref("ollama", "openai", "b")) is local
    assert client_of(Config(), ref("ollama", "openai", "a")) is not local
    with pytest.raises(ConfigError):
        clients(ref("nobody", "openai", "a"))
