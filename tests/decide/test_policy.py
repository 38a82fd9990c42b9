"""Modes, file rules, other tools, the language of rules, and properties of the whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.decide.patterns import Rule
from muse.decide.policy import MODES, Mode, Policy, Request, hidden, judge, matches, parse_mode, parse_rule
from muse.errors import ConfigError


def edit(*paths: str, tool: str = "edit", outside: bool = False) -> Request:
    return Request(tool, "reconcilable", {}, paths, writes=True, outside=outside)


def read(*paths: str, tool: str = "read", outside: bool = False) -> Request:
    return Request(tool, "pure", {}, paths, outside=outside)


def rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(parse_rule(text) for text in texts)


MODE_TABLE = [
    (read("a.py"), "allow", "allow", "allow", "allow"),
    (read("."), "allow", "allow", "allow", "allow"),
    (read("."), "allow", "allow", "allow", "allow"),
    (read("", outside=True), "ask", "ask", "ask", "allow"),
    (read("/etc/passwd", outside=True), "ask", "ask", "ask", "allow"),
    (read(".env"), "ask", "ask", "ask", "allow"),
    (edit("a.py"), "ask", "allow", "deny", "allow"),
    (edit("src/a.py", tool="write"), "ask", "allow", "deny", "allow"),
    (edit(".git/config"), "ask", "ask", "deny", "allow"),
    (edit("sub/.GIT/hooks/x"), "ask", "ask", "deny", "allow"),
    (edit(".muse/config.toml"), "ask", "ask", "deny", "allow"),
    (edit("sub/HEAD"), "ask", "ask", "deny", "allow"),
    (edit(".gitignore"), "ask", "allow", "deny", "allow"),
    (edit("a.py", ".git/x"), "ask", "ask", "deny", "allow"),
    (edit("", outside=True), "ask", "ask", "deny", "allow"),
    (edit(), "ask", "ask", "deny", "allow"),
    (Request("mcp__x__y", "opaque"), "ask", "ask", "deny", "allow"),
    (Request("fetch", "keyed"), "ask", "ask", "deny", "allow"),
    (Request("spawn", "attachable"), "allow", "allow", "allow", "allow"),
    (Request("stop", "reconcilable", {"call": "main/3"}, (".",), writes=True), "allow", "allow", "deny", "allow"),
    (Request("shell", "attachable"), "ask", "ask", "deny", "allow"),
    (Request("shell", "attachable", {"command": 7}), "ask", "ask", "deny", "allow"),
    (Request("shell", "attachable", {"command": ""}), "ask", "ask", "deny", "allow"),
]


@pytest.mark.parametrize("row", MODE_TABLE, ids=lambda row: f"{row[0].tool}-{'-'.join(row[0].paths)}")
def test_each_mode_decides_as_promised(row: tuple[Request, str, str, str, str]) -> None:
    request, *expected = row
    assert [judge(request, Policy(mode)).decision for mode in MODES] == expected


MODE_SPELLINGS = [
    ("default", "default"),
    ("accept-edits", "accept-edits"),
    ("acceptEdits", "accept-edits"),
    ("accept_edits", "accept-edits"),
    ("auto_edit", "accept-edits"),
    ("auto-edit", "accept-edits"),
    ("plan", "plan"),
    ("PLAN", "plan"),
    ("read-only", "plan"),
    ("yolo", "yolo"),
    ("--yolo", "yolo"),
    ("bypassPermissions", "yolo"),
    ("--dangerously-skip-permissions", "yolo"),
    ("dangerously-bypass-approvals-and-sandbox", "yolo"),
    ("on-request", "default"),
    ("untrusted", "default"),
]


@pytest.mark.parametrize(("text", "mode"), MODE_SPELLINGS)
def test_modes_are_known_by_the_spellings_of_other_agents(text: str, mode: Mode) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize("text", ["", "never", "dontAsk", "full-auto", "auto", "yes", "\ud800", "x" * 10_000])
def test_an_unknown_mode_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mode(text)
    assert "default, accept-edits, plan, yolo" in caught.value.hint


def test_a_misspelled_mode_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mode("acept-edit")
    assert "did you mean accept-edits?" in caught.value.hint


FILE_RULES = [
    ("edit(src/**)", "src/a.py", True),
    ("edit(src/**)", "src/x/y/a.py", True),
    ("edit(src/**)", "srcs/a.py", False),
    ("edit(src/*)", "src/a.py", True),
    ("edit(src/*)", "src/x/a.py", False),
    ("edit(*.py)", "a.py", True),
    ("edit(*.py)", "src/a.py", False),
    ("edit(**/*.py)", "src/x/a.py", True),
    ("edit(**/*.py)", "a.py", True),
    ("edit(./src/a.py)", "src/a.py", True),
    ("edit(src/)", "src/a.py", True),
    ("edit(src/a.py)", "src/A.py", False),
    ("edit(a\\*b)", "a*b", True),
    ("edit(a\\*b)", "axb", False),
    ("edit(t*t*s/**)", "tests/a", True),
    ("edit", "any/where.py", True),
    ("Edit(src/**)", "src/a.py", True),
    ("edit(**)", ".git/config", False),
    ("edit", ".git/config", False),
    ("edit(.git/**)", ".git/config", True),
    ("edit(src/**)", "", False),
    ("edit", "", False),
    ("read(src/**)", "src/a.py", False),
    ("shell", "src/a.py", False),
]


@pytest.mark.parametrize(("rule", "path", "fits"), FILE_RULES)
def test_file_rules_fit_paths(rule: str, path: str, fits: bool) -> None:
    request = edit(path, outside=not path)
    assert (judge(request, Policy(allow=rules(rule))).decision == "allow") == fits
    assert matches(parse_rule(rule), request) == fits


def test_edit_rules_cover_write_and_not_the_other_way_round() -> None:
    assert judge(edit("a", tool="write"), Policy(allow=rules("edit(a)"))).decision == "allow"
    assert judge(edit("a", tool="write"), Policy(allow=rules("write(a)"))).decision == "allow"
    assert judge(edit("a"), Policy(allow=rules("write(a)"))).decision == "ask"
    assert judge(edit("a"), Policy("yolo", deny=rules("write(a)"))).decision == "deny"


def test_every_path_must_be_covered_to_allow_and_one_is_enough_to_deny() -> None:
    assert judge(edit("src/a", "b"), Policy(allow=rules("edit(src/**)"))).decision == "ask"
    assert judge(edit("src/a", "b"), Policy("yolo", deny=rules("edit(src/**)"))).decision == "deny"


def test_a_folder_without_star_and_other_letter_case_are_denied_too() -> None:
    chosen = Policy("yolo", deny=rules("edit(vendor)"))
    assert judge(edit("vendor/x/y"), chosen).decision == "deny"
    assert judge(edit("Vendor/x"), chosen).decision == "deny"
    assert judge(edit("vendored"), chosen).decision == "allow"


def test_read_rules_cover_every_reading_tool() -> None:
    chosen = Policy(deny=rules("read(secrets/**)"))
    assert judge(read("secrets/x"), chosen).decision == "deny"
    assert judge(read("secrets", tool="grep"), chosen).decision == "deny"
    assert judge(read("src", tool="glob"), chosen).decision == "allow"
    found = hidden("secrets/x", chosen)
    assert found is not None
    assert found.text == "read(secrets/**)"
    assert hidden("src/x", chosen) is None


def test_an_explicit_read_rule_frees_a_secret_and_a_bare_one_does_not() -> None:
    assert judge(read(".env"), Policy(allow=rules("read(.env)"))).decision == "allow"
    assert judge(read(".env"), Policy(allow=rules("read"))).decision == "ask"


def test_tool_names_may_have_stars() -> None:
    call = Request("mcp__files__list", "opaque")
    assert judge(call, Policy(allow=rules("mcp__files__*"))).decision == "allow"
    assert judge(call, Policy(allow=rules("mcp__files"))).decision == "ask"
    assert judge(call, Policy(allow=rules("mcp__*"), ask=rules("mcp__files__list"))).decision == "ask"
    assert judge(call, Policy("yolo", deny=rules("*"))).decision == "deny"


def test_the_order_is_deny_ask_allow() -> None:
    everything = rules("edit(a)")
    assert judge(edit("a"), Policy(allow=everything, ask=everything, deny=everything)).decision == "deny"
    assert judge(edit("a"), Policy(allow=everything, ask=everything)).decision == "ask"
    assert judge(edit("a"), Policy(allow=everything)).decision == "allow"


def test_the_verdict_names_the_rule_that_decided() -> None:
    assert judge(edit("a"), Policy(deny=rules("Edit(a)"))).rule == "denied by the rule Edit(a)"
    assert "edit(a)" in judge(edit("a"), Policy(remembered=rules("edit(a)"))).rule
    assert judge(edit("a"), Policy("accept-edits")).rule.startswith("mode accept-edits")


OFFERED = [
    (edit("src/app.py"), "edit(src/app.py)"),
    (edit("src/a.py", "src/b.py"), "edit(src/*)"),
    (edit("a.py", "src/b.py"), ""),
    (edit("a*b"), "edit(a\\*b)"),
    (edit("~x"), "edit(./~x)"),
    (edit("*"), "edit(\\*)"),
    (edit("a\nb"), ""),
    (edit("\ud800"), ""),
    (edit("../x"), ""),
    (edit(".git/config"), "edit(.git/config)"),
    (edit("", outside=True), ""),
    (read("/etc/passwd", outside=True), ""),
    (read(".env"), "read(.env)"),
    (Request("mcp__x__y", "opaque"), "mcp__x__y"),
    (Request("bad name", "opaque"), ""),
    (Request("x*", "opaque"), ""),
]


@pytest.mark.parametrize(("request_", "pattern"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_always_adds_one_narrow_rule(request_: Request, pattern: str) -> None:
    assert judge(request_, Policy()).remember == pattern
    if pattern:
        assert judge(request_, Policy(remembered=rules(pattern))).decision == "allow"


SAME = [
    ("Bash(git log:*)", "shell", "git log *"),
    ("Bash(git log *)", "shell", "git log *"),
    ("shell", "shell", ""),
    ("shell(*)", "shell", ""),
    ("Write(a)", "write", "a"),
    ("Read(./a/**)", "read", "a/**"),
    ("MultiEdit(a)", "edit", "a"),
    ("mcp__x__*", "mcp__x__*", ""),
    ("edit(**)", "edit", ""),
    ("edit(*)", "edit", "*"),
    ("  shell( ls )  ", "shell", "ls"),
    ("shell(echo (x))", "shell", "echo (x)"),
]


@pytest.mark.parametrize(("text", "tool", "pattern"), SAME)
def test_rules_are_read_in_both_spellings(text: str, tool: str, pattern: str) -> None:
    rule = parse_rule(text)
    assert (rule.tool, rule.pattern) == (tool, pattern)


BAD = [
    "", "(", "shell(", "shell)", "shell()", "git log *", "edit(/etc/x)", "edit(~/x)", "read(../x)", "edit(C:\\x)",
    "shell('open)", "mcp__x__y(z)", "shel(ls)", "edits(a)", "x" * 5000, "shell(a\nb)", "shell(\ud800)",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_broken_rule_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert caught.value.hint
    str(caught.value).encode()


def test_a_rule_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be text"):
        parse_rule(7)


def test_a_misspelled_tool_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule("shel")
    assert "did you mean shell?" in caught.value.hint


# -- properties --------------------------------------------------------------------------------------------------------

RULE_TEXTS = st.sampled_from(
    ["shell", "shell(ls *)", "shell(rm *)", "shell(git *)", "shell(*x*)", "shell(sudo *)", "shell(echo)", "edit",
     "edit(a)", "edit(src/**)", "write(a)", "read", "read(src/**)", "read(.env)", "mcp__*", "*", "glob",
     "shell(sh -c 'rm x')"]
)  # fmt: skip
RULES = st.lists(RULE_TEXTS.map(parse_rule), max_size=3).map(tuple)
COMMANDS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["ls", "rm", "x", "git", "log", ";", "|", "&&", "$(", ")", "'", '"', "\n", ">", "a", "src/b",
                         "sudo", "sh -c", "$x", "*", "echo", "find . -exec", "{}", "\\;", "<<E", "E", "cat", ".env",
                         "(", "eval", "\\"]),
        max_size=8,
    ).map(" ".join),
)  # fmt: skip
VALUES = st.one_of(st.none(), st.integers(), st.booleans(), COMMANDS, st.lists(st.text(max_size=3), max_size=2))
PATHS = st.lists(
    st.one_of(st.sampled_from(["a", "src/b", ".git/x", "", ".env", "..", "/x", "~x"]), st.text(max_size=5)), max_size=2
)
REQUESTS = st.builds(
    Request,
    st.one_of(st.sampled_from(["shell", "edit", "write", "read", "glob", "mcp__x__y", "spawn"]), st.text(max_size=4)),
    st.sampled_from(["pure", "repeatable", "reconcilable", "attachable", "keyed", "opaque"]),
    st.dictionaries(st.sampled_from(["command", "cmd", "cwd", "path"]), VALUES, max_size=3),
    PATHS.map(tuple),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "/home/me/p"]),
)
POLICIES = st.builds(Policy, st.sampled_from(MODES), RULES, RULES, RULES, RULES)
ORDER = {"deny": 0, "ask": 1, "allow": 2}


@settings(max_examples=400, deadline=None)
@given(REQUESTS, POLICIES)
def test_judging_never_fails_and_is_deterministic(request: Request, policy: Policy) -> None:
    verdict = judge(request, policy)
    assert verdict == judge(request, policy)
    verdict.rule.encode()
    if verdict.remember:
        widened = Policy(
            policy.mode, policy.allow, policy.ask, policy.deny, (*policy.remembered, parse_rule(verdict.remember))
        )
        assert judge(request, widened).decision == "allow"


@settings(max_examples=400, deadline=None)
@given(REQUESTS, POLICIES, RULE_TEXTS)
def test_one_more_deny_rule_never_permits_more(request: Request, policy: Policy, text: str) -> None:
    before = judge(request, policy).decision
    more = Policy(policy.mode, policy.allow, policy.ask, (*policy.deny, parse_rule(text)), policy.remembered)
    assert ORDER[judge(request, more).decision] <= ORDER[before]


@settings(max_examples=400, deadline=None)
@given(REQUESTS, POLICIES, RULE_TEXTS)
def test_one_more_ask_rule_never_permits_more(request: Request, policy: Policy, text: str) -> None:
    before = judge(request, policy).decision
    more = Policy(policy.mode, policy.allow, (*policy.ask, parse_rule(text)), policy.deny, policy.remembered)
    assert ORDER[judge(request, more).decision] <= ORDER[before]


@settings(max_examples=400, deadline=None)
@given(REQUESTS, POLICIES, RULE_TEXTS)
def test_allow_rules_never_override_denials_or_asks(request: Request, policy: Policy, text: str) -> None:
    strict = judge(request, Policy(policy.mode, (), policy.ask, policy.deny))
    more = Policy(policy.mode, (*policy.allow, parse_rule(text)), policy.ask, policy.deny, policy.remembered)
    if strict.decision == "deny" or "the rule" in strict.rule:
        assert judge(request, more).decision == strict.decision


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_rule_text_is_read_or_refused(text: str) -> None:
    try:
        rule = parse_rule(text)
    except ConfigError:
        return
    judge(Request("shell", "attachable", {"command": text}), Policy("default", (rule,), (rule,), (rule,)))


HUGE = [
    "(" * 60_000,
    "$(" * 30_000,
    "`" * 60_000,
    "sudo " * 12_000,
    "x " * 30_000,
    ";" * 60_000,
    "sh -c '" * 900,
    "a|" * 30_000,
]


@pytest.mark.parametrize("command", HUGE, ids=lambda value: value[:6])
def test_huge_command_lines_are_judged(command: str) -> None:
    chosen = Policy("yolo", deny=rules("shell(rm *)", "shell(* -x *)"))
    assert judge(Request("shell", "attachable", {"command": command}), chosen).decision in {"allow", "ask", "deny"}
