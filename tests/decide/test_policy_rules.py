"""Rules about commands: what they decide, what they deny in every mode, and which rule `always` offers."""

import pytest

from muse.decide.policy import Request, forbids, judge, matches, parse_rule
from tests.decide.asked import policy, request

ALLOW = [
    "shell(git commit *)", "shell(pytest *)", "shell(npm run test:*)", "shell(make)", "shell(echo hi *)",
    "shell(rm build/*)", "edit(out/**)", "shell(uv run pytest *)",
]  # fmt: skip
DENY = ["shell(rm -rf *)", "shell(git push *)", "shell(curl *)", "edit(vendor/**)", "read(secrets/**)"]

RULED = [
    ("git commit -m 'x; y'", "allow"),
    ("git commit", "allow"),
    ("git commit-tree x", "ask"),
    ("git commit -m x && git status", "allow"),
    ("git commit -m x && rm x", "ask"),
    ("git commit -m \"$(cat msg)\"", "ask"),
    ("git commit -m x > log", "ask"),
    ("git commit -m x > out/log", "allow"),
    ("git commit -m x > out/../log", "ask"),
    ("git commit -m x 2>/dev/null", "allow"),
    ("cd out && git commit -m x > out/log", "ask"),
    ("pytest", "allow"),
    ("pytest -q tests", "allow"),
    ("pytest | tail -3", "allow"),
    ("pytest | sh", "ask"),
    ("PYTHONUNBUFFERED=1 pytest", "allow"),
    ("PYTHONPATH=x pytest", "ask"),
    ("./pytest", "ask"),
    ("/tmp/pytest", "ask"),
    ("time pytest", "allow"),
    ("timeout 60 pytest", "allow"),
    ("sudo pytest", "ask"),
    ("env pytest", "ask"),
    ("xargs pytest", "allow"),
    ("pytest $X", "ask"),
    ("pytest; curl x", "deny"),
    ("npm run test", "allow"),
    ("npm run test -- -k x", "allow"),
    ("npm run tests", "ask"),
    ("make", "allow"),
    ("make clean", "ask"),
    ("uv run pytest -q", "allow"),
    ("uv run rm -rf x", "ask"),
    ("rm build/x", "allow"),
    ("rm build/x other", "ask"),
    ("rm build/../x", "ask"),
    ("rm build/$X", "ask"),
    ("xargs rm build/x", "ask"),
    ("xargs -a f pytest", "ask"),
    ("rm -rf x", "deny"),
    ("rm -rf", "deny"),
    ("RM -rf x", "deny"),
    ("rm -r x", "ask"),
    ("/bin/rm -rf x", "deny"),
    ("\\rm -rf x", "deny"),
    ("r''m -rf x", "deny"),
    ('"rm" -rf x', "deny"),
    ("$'\\x72m' -rf x", "deny"),
    ("FOO=1 rm -rf x", "deny"),
    ("ls; rm -rf x", "deny"),
    ("ls\nrm -rf x", "deny"),
    ("ls & rm -rf x", "deny"),
    ("(rm -rf x)", "deny"),
    ("{ rm -rf x; }", "deny"),
    ("! rm -rf x", "deny"),
    ("if true; then rm -rf x; fi", "deny"),
    ("for f in a; do rm -rf x; done", "deny"),
    ("ls $(rm -rf x)", "deny"),
    ('ls "`rm -rf x`"', "deny"),
    ("cat <(rm -rf x)", "deny"),
    ("cat <<EOF\n$(rm -rf x)\nEOF", "deny"),
    ("sudo rm -rf x", "deny"),
    ("sudo -u bob -- rm -rf x", "deny"),
    ("sudo --unheard-of rm -rf x", "deny"),
    ("env -i A=1 rm -rf x", "deny"),
    ("env -S 'rm -rf x'", "deny"),
    ("nohup nice -n 3 rm -rf x", "deny"),
    ("timeout 5 rm -rf x", "deny"),
    ("time rm -rf x", "deny"),
    ("command rm -rf x", "deny"),
    ("exec rm -rf x", "deny"),
    ("eval 'rm -rf x'", "deny"),
    ("eval rm -rf x", "deny"),
    ("sh -c 'rm -rf x'", "deny"),
    ('bash -lc "sudo rm -rf x"', "deny"),
    ("sh -c 'sh -c \"rm -rf x\"'", "deny"),
    ("xargs rm -rf", "deny"),
    ("find . -exec rm -rf {} +", "deny"),
    ("ssh host rm -rf x", "deny"),
    ("busybox rm -rf x", "deny"),
    ("watch rm -rf x", "deny"),
    ("parallel rm -rf x", "deny"),
    ("trap 'rm -rf x' EXIT", "deny"),
    ("f() { rm -rf x; }; f", "deny"),
    ("echo $((1)); rm -rf x", "deny"),
    ("rm $FLAGS x", "ask"),
    ("$CMD -rf x", "ask"),
    ("r? -rf x", "ask"),
    ("{rm,-rf,x}", "ask"),
    ("echo 'rm -rf x'", "allow"),
    ("git push", "deny"),
    ("git -C sub push", "deny"),
    ("git -c a=b --no-pager push origin", "deny"),
    ("git log push", "allow"),
    ("curl", "deny"),
    ("echo x > vendor/a", "deny"),
    ("echo x > ./vendor//a", "deny"),
    ("echo x > VENDOR/a", "deny"),
    ("cp x vendor/a", "deny"),
    ("cp vendor/a x", "ask"),
    ("rm vendor/a", "deny"),
    ("sed -i s/a/b/ vendor/a", "deny"),
    ("sed -n 1p vendor/a", "allow"),
    ("cat vendor/a", "allow"),
    ("cat secrets/a", "deny"),
    ("cat < secrets/a", "deny"),
    ("grep x -f secrets/a", "deny"),
    ("git show HEAD:secrets/a", "deny"),
    ("cd secrets && cat a", "deny"),
    ("echo x > out/.git/hooks/y", "ask"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), RULED)
def test_rules_decide_about_every_stage(command: str, expected: str) -> None:
    assert judge(request(command), policy(allow=ALLOW, deny=DENY)).decision == expected


@pytest.mark.parametrize("command", [command for command, expected in RULED if expected == "deny"])
def test_denials_hold_in_yolo_and_against_an_allow_rule_for_everything(command: str) -> None:
    assert judge(request(command), policy("yolo", allow=["shell"], deny=DENY)).decision == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "$CMD -rf x",
        "rm $FLAGS",
        "xargs nice",
        "xargs sudo -u bob",
        "{rm,-rf,x}",
        "echo $((1))",
        'sh -c "$x"',
        "ls | sh",
    ],
)
def test_yolo_asks_where_only_running_it_could_tell_whether_it_is_denied(command: str) -> None:
    assert judge(request(command), policy("yolo", deny=["shell(rm -rf *)"])).decision == "ask"


@pytest.mark.parametrize("command", ["python x.py $ARG", "bash build.sh", "git rm x", "for f in *; do wc $f; done"])
def test_yolo_does_not_ask_about_what_no_rule_can_mean(command: str) -> None:
    assert judge(request(command), policy("yolo", deny=["shell(rm -rf *)"])).decision == "allow"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("wc *.py", "allow"),
        ("wc src/*", "allow"),
        ("cat *", "ask"),
        ("cat s*/key", "ask"),
        ("cat [s]ecrets/key", "ask"),
        ("cat $FILE", "ask"),
        ("python x.py $FILE", "allow"),
        ("cat < $FILE", "ask"),
        ("cat SECRETS/key", "deny"),
        ("cd sub && cat key", "allow"),
        ("rm -r vend*", "ask"),
        ("rm -r $DIR", "ask"),
        ("cd sub && rm x", "ask"),
        ("rm src/*", "allow"),
    ],
)
def test_file_rules_look_at_what_commands_name(command: str, expected: str) -> None:
    chosen = policy("yolo", deny=["read(secrets/**)", "edit(vendor/**)"])
    assert judge(request(command), chosen).decision == expected


def test_a_rule_without_star_frees_the_redirections_it_shows() -> None:
    command = request("sh -c 'make > log'")
    assert judge(command, policy(allow=["shell(sh -c 'make > log')"])).decision == "allow"


def test_a_bare_shell_rule_frees_every_command_that_can_be_read() -> None:
    chosen = policy(allow=["shell"])
    assert judge(request("rm x > y; sudo make"), chosen).decision == "allow"
    assert judge(request("echo x > .git/config"), chosen).decision == "ask"
    assert judge(request("echo $((1))"), chosen).decision == "ask"


def test_a_guarded_policy_does_not_free_dynamic_commands() -> None:
    command = request("pytest $FILE")
    assert judge(command, policy(allow=["shell(pytest *)"])).decision == "allow"
    assert judge(command, policy(allow=["shell(pytest *)"], deny=["shell(rm *)"])).decision == "ask"
    assert judge(command, policy(allow=["shell(pytest *)"], ask=["shell(rm *)"])).decision == "ask"


def test_ask_rules_come_before_allow_rules_and_the_mode() -> None:
    chosen = policy("accept-edits", allow=["shell"], ask=["shell(git log *)"])
    assert judge(request("git log"), chosen).decision == "ask"
    assert judge(request("ls && git log"), chosen).decision == "ask"
    assert judge(request("git status"), chosen).decision == "allow"


def test_a_rule_without_star_frees_the_command_behind_its_wrapper() -> None:
    chosen = policy(allow=["shell(sudo systemctl restart x)"])
    assert judge(request("sudo systemctl restart x"), chosen).decision == "allow"
    assert judge(request("sudo systemctl restart y"), chosen).decision == "ask"
    wide = policy(allow=["shell(sudo *)"])
    assert judge(request("sudo ls"), wide).decision == "allow"
    assert judge(request("sudo rm x"), wide).decision == "ask"
    both = policy(allow=["shell(sudo *)", "shell(rm *)"])
    assert judge(request("sudo rm x"), both).decision == "allow"


def test_a_rule_may_spell_out_an_assignment() -> None:
    chosen = policy(allow=["shell(DEBUG=1 pytest *)"])
    assert judge(request("DEBUG=1 pytest -q"), chosen).decision == "allow"
    assert judge(request("DEBUG=2 pytest -q"), chosen).decision == "ask"


def test_paths_below_the_workspace_count_as_inside() -> None:
    assert judge(request("cd /home/me/p/src && ls"), policy()).decision == "ask"
    assert judge(request("cd /home/me/p && git status", "/home/me/p"), policy()).decision == "allow"
    assert judge(request("cd /home/me/p/src && ls", "/home/me/p"), policy()).decision == "allow"
    assert judge(request("grep -r x /home/me/p", "/home/me/p"), policy()).decision == "allow"
    assert judge(request("grep -r x /home/me/pq", "/home/me/p"), policy()).decision == "ask"
    assert judge(request("cat /home/me/p/secrets/x", "/home/me/p"), policy(deny=DENY)).decision == "deny"


def test_a_command_under_its_other_name_is_judged_too() -> None:
    args = {"cmd": "rm -rf x"}
    assert judge(Request("shell", "attachable", args), policy("yolo", deny=DENY)).decision == "deny"
    args = {"command": "ls", "cmd": "rm -rf x"}
    assert judge(Request("shell", "attachable", args), policy("default", deny=DENY)).decision == "ask"


def test_a_rule_fits_or_does_not_fit_a_request() -> None:
    rule = parse_rule("shell(git log *)")
    assert matches(rule, request("git log -3"))
    assert matches(rule, request("git log -3 | head"))
    assert not matches(rule, request("git log -3; rm x"))
    assert not matches(rule, request("ls"))
    assert forbids(parse_rule("shell(rm *)"), request("sudo rm x")) == "yes"
    assert forbids(parse_rule("shell(rm *)"), request("$x y")) == "maybe"
    assert forbids(parse_rule("shell(rm *)"), request("ls")) == "no"


OFFERED = [
    ("pytest", "shell(pytest *)"),
    ("pytest -q tests/x.py", "shell(pytest *)"),
    ("git commit -m 'a b'", "shell(git commit *)"),
    ("git push origin main", "shell(git push origin main)"),
    ("git -c a=b commit", "shell(git -c a=b commit)"),
    ("npm run build -- --x", "shell(npm run build *)"),
    ("npm install x", "shell(npm install *)"),
    ("cargo test", "shell(cargo test *)"),
    ("make", "shell(make)"),
    ("make test", "shell(make test *)"),
    ("uv run pytest -q", "shell(uv run pytest *)"),
    ("uv run python -c x", "shell(uv run python -c x)"),
    ("python -m pytest -q", "shell(python -m pytest *)"),
    ("python -c 'print(1)'", "shell(python -c 'print(1)')"),
    ("python x.py", "shell(python x.py)"),
    ("node -e 'x()'", "shell(node -e 'x()')"),
    ("bash x.sh", "shell(bash x.sh)"),
    ("rm x", "shell(rm x)"),
    ("rm '*'", "shell(rm '*')"),
    ("rm *", ""),
    ("curl http://x", "shell(curl http://x)"),
    ("find . -delete", "shell(find . -delete)"),
    ("sudo apt install x", "shell(sudo apt install x)"),
    ("./run.sh a", "shell(./run.sh *)"),
    ("cat .env", "shell(cat .env)"),
    ("DEBUG=1 pytest", "shell(DEBUG=1 pytest)"),
    ("pytest && rm x", ""),
    ("pytest | tee x", ""),
    ("pytest > x", ""),
    ("pytest $X", ""),
    ("python <<< 'x'", ""),
    ("python <<E\nx\nE", ""),
    ("ls | sh", ""),
    ("sh -c \"$x\"", ""),
    ("xargs rm", ""),
    ("echo $((1))", ""),
    ("rm \u202e", ""),
]  # fmt: skip


@pytest.mark.parametrize(("command", "pattern"), OFFERED)
def test_always_offers_the_narrowest_useful_rule(command: str, pattern: str) -> None:
    assert judge(request(command), policy()).remember == pattern


@pytest.mark.parametrize(("command", "pattern"), [row for row in OFFERED if row[1]])
def test_what_always_adds_frees_the_same_command_next_time(command: str, pattern: str) -> None:
    assert judge(request(command), policy(old=[pattern])).decision == "allow"


def test_always_is_not_offered_where_it_would_not_help() -> None:
    assert judge(request("pytest -q"), policy(ask=["shell(pytest *)"])).remember == ""
    assert judge(request("ls"), policy()).remember == ""
