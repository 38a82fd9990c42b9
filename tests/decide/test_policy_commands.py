"""Command lines and what is decided about them: a table written by hand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from muse.decide.policy import Mode, Policy, Request, forbids, judge, matches, parse_rule

ALLOW = [
    "shell(git commit *)", "shell(pytest *)", "shell(npm run test:*)", "shell(make)", "shell(echo hi *)",
    "shell(rm build/*)", "edit(out/**)", "shell(uv run pytest *)",
]  # fmt: skip
DENY = ["shell(rm -rf *)", "shell(git push *)", "shell(curl *)", "edit(vendor/**)", "read(secrets/**)"]


def request(command: str, workspace: str = "") -> Request:
    return Request("shell", "attachable", {"command": command}, writes=True, workspace=workspace)


def policy(mode: Mode = "default", allow: object = (), ask: object = (), deny: object = (), old: object = ()) -> Policy:
    def rules(texts: object) -> tuple[object, ...]:
        assert isinstance(texts, list | tuple)
        return tuple(parse_rule(text) for text in texts)

    return Policy(mode, rules(allow), rules(ask), rules(deny), rules(old))  # type: ignore[arg-type]


FREE = r"""
ls
ls -la src
pwd
cat README.md
head -n 20 src/app.py
tail -n 5 log.txt
wc -l src/app.py
echo hello
true
date
date -Iseconds
date +%s
whoami
id
uname -a
which python
file a.out
stat a.txt
du -sh .
df -h
tree -L 2
grep -rn foo src
grep -n "a|b" x.py
rg foo
rg --files -g '*.py'
find . -name '*.py' -not -path './.venv/*'
find . -maxdepth 2 -type f
sort a.txt
sort -u -k2,2 a.txt
uniq -c
uniq a.txt
cut -d, -f1 a.csv
diff a.txt b.txt
git status
git status --porcelain
git log --oneline -20
git --no-pager log -3
git diff HEAD~1 -- src
git show HEAD
git branch
git branch -a -vv
git branch --list 'feature/*'
git branch --contains HEAD
git branch --show-current
git tag -l
git remote -v
git stash list
git rev-parse HEAD
git ls-files
git blame src/app.py
python --version
python3 -V
node --version
go version
sed -n 10,20p src/app.py
cd src && ls
ls | head
ls; pwd
cat a.txt | sort | uniq -c
ls 2>/dev/null
ls 2>&1 | tail -3
ls >/dev/null
cat < a.txt
(ls; pwd)
! ls
if true; then ls; fi
time ls
timeout 5 ls
nice -n 5 ls
command -v python
command ls
LC_ALL=C sort a.txt
ls # nothing
ls -la | grep foo
ls *.py
cat src/*.py
echo "exit $?"
echo 'rm -rf /'
echo "it's; fine"
cat /usr/include/stdio.h
cat .env.example
xargs echo
cat <<'EOF'\n$(rm x)\nEOF
set -euo pipefail; ls
sleep 0.01
test -f a.txt && echo yes
[ -d src ]
for f in a b; do ls; done
""".strip().splitlines()

ASKS = """
rm x
touch x
ls;rm x
ls\\nrm x
ls & rm x
ls && rm x
ls | xargs rm
(rm x)
{ rm x; }
! rm x
if true; then rm x; fi
while true; do rm x; done
ls $(rm x)
ls "$(rm x)"
ls `rm x`
cat <(rm x)
cat <<EOF | sh\\nrm x\\nEOF
cat <<EOF\\n$(rm x)\\nEOF
echo x > ~/.bashrc
echo x > file
echo x >> file
echo x >| file
echo x &> file
: > file
> file
ls 2> err.txt
ls <> file
env X=1 rm x
env
env ls
printenv
FOO=bar rm x
LD_PRELOAD=./x.so ls
PATH=. ls
GIT_PAGER=./x git log
IFS=x ls
FOO=bar
export FOO=bar
alias ls=rm
find . -delete
find . -exec rm {} \\\\;
find . -exec ls {} \\\\;
find . -ok rm {} \\\\;
find . -fprint x
find . -fprintf x %p
find . -fls x
find * -name x
sort -o x y
sort y -ox
sort --output=x y
sort --outp=x y
sort --compress-program=./x y
sort -T /x y
uniq a b
awk 'BEGIN{system("rm")}'
awk 1 a.txt
git -c core.pager=./x log
git -C .. log
git --git-dir=x log
git --exec-path=. log
git -p log
git log --output=x
git log --outp x
git diff --output x
git show --output=x
git diff --ext-diff
git show --textconv
git grep -O./x foo
git grep --open-files-in-pager=./x foo
git branch new
git branch -D main
git branch -d --list x
git branch -m a b
git branch -f main HEAD~1
git branch -a new
git branch --edit-description
git branch --set-upstream-to=origin/x
git tag v1
git tag -d v1
git remote add x y
git remote show origin
git ls-remote --upload-pack=./x .
git stash
git stash drop
git reflog expire --all
git worktree add x
git config --list
git commit -m x
git checkout .
git cat-file --filters HEAD:x
git
time rm x
time -o file ls
\\\\rm x
r''m x
"rm" x
$'\\\\x72m' x
$'ls' x
xargs rm
xargs cat
xargs nice
xargs command
xargs timeout 5
xargs xargs
xargs nice nice
cd sub && git status
yarn --version
pytest --version
cargo --version
xargs -I{} sh -c '{}'
tee x
ls | tee x
sed -i s/a/b/ x
sed -n 'w x' y
sed 's/a/b/e' x
sed -n 1p -i x
sudo ls
doas ls
nohup ls
exec ls
eval ls
sh -c ls
bash x.sh
bash
ls | sh
source x.sh
. ./x.sh
ssh host ls
busybox ls
watch ls
parallel ls
python -c 'print(1)'
python x.py
python --version x
./ls
/tmp/ls
~/bin/ls
$CMD
ls $HOME
cat $FILE
ls ${x:-y}
echo {a,b}
l? x
echo $((1+1))
f() { rm x; }; f
function f { rm x; }
case x in x) rm x;; esac
[[ -f x ]]
test -v 'a[$(rm x)]'
printf -v 'a[$(rm x)]' x
wait -p 'a[$(rm x)]'
cat ~/.ssh/id_rsa
cat ~/.s*/id_rsa
head -c 10 /etc/shadow
cat /etc/./shadow
cat ../../etc/shadow
cat .env
cat src/.env
cat .e*
cat "$HOME/.ssh/id_rsa"
cat ~/.aws/credentials
cat ~/.netrc
cat server.pem
cat /proc/self/environ
cat /proc/1/environ
cat < ~/.ssh/id_rsa
cat < /dev/tcp/host/80
wc --files0-from=/etc/shadow
grep -f/etc/shadow x
grep -r key ~
grep -r key /
grep -r key ..
rg key ~/x
rg --pre ./x foo
rg --pre=./x foo
rg -z foo
rg --hostname-bin=./x foo
git show HEAD:.env
git diff --no-index /dev/null ~/.ssh/id_rsa
diff --from-file=/etc/shadow a
tree -o x
tree -R -H . -L 1
file -C -m x
date -s 12:00
date 010100002027
date --set=x
hostname x
cd
cd ~
cd /
cd ..
cd -
set +o history; set -o vi
less x
ls\\0rm x
ls\\r
ls \\ud800
ls \\u202e
ls \\uff1b rm x
\\u217ds
ls 'open
ls )

kill 1
curl http://x
wget -O- x
""".strip("\n").splitlines()


def decoded(line: str) -> str:
    """The escapes of the table: \\n, \\r, \\0, \\uXXXX and \\\\."""
    out, position = "", 0
    simple = {"n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
    while position < len(line):
        following = line[position + 1 : position + 2]
        if line[position] == "\\" and following in simple:
            out, position = out + simple[following], position + 2
        elif line[position] == "\\" and following == "u":
            out, position = out + chr(int(line[position + 2 : position + 6], 16)), position + 6
        else:
            out, position = out + line[position], position + 1
    return out


@pytest.mark.parametrize("line", FREE)
def test_plainly_harmless_commands_are_free(line: str) -> None:
    verdict = judge(request(decoded(line)), policy())
    assert (verdict.decision, verdict.rule) == ("allow", "mode default: plainly harmless")


@pytest.mark.parametrize("line", FREE)
def test_plainly_harmless_commands_are_free_in_plan_mode(line: str) -> None:
    assert judge(request(decoded(line)), policy("plan")).decision == "allow"


@pytest.mark.parametrize("line", ASKS)
def test_every_other_command_asks(line: str) -> None:
    assert judge(request(decoded(line)), policy()).decision == "ask"


@pytest.mark.parametrize("line", ASKS)
def test_accepting_edits_frees_no_command(line: str) -> None:
    assert judge(request(decoded(line)), policy("accept-edits")).decision == "ask"


@pytest.mark.parametrize("line", ASKS)
def test_plan_mode_denies_every_other_command_and_says_so(line: str) -> None:
    verdict = judge(request(decoded(line)), policy("plan", allow=["shell"]))
    assert verdict.decision == "deny"
    assert "plan mode" in verdict.rule
    assert "present a plan" in verdict.rule


@pytest.mark.parametrize("line", ASKS)
def test_yolo_allows_every_command(line: str) -> None:
    assert judge(request(decoded(line)), policy("yolo", ask=["shell"])).decision == "allow"


@pytest.mark.skipif(shutil.which("bash") is None, reason="runs the commands with bash")
def test_plainly_harmless_commands_leave_every_file_as_it_was(tmp_path: Path) -> None:
    for name in ("README.md", "a.txt", "b.txt", "log.txt", "a.csv", "x.py", ".env.example", "src/app.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    for line in FREE:
        subprocess.run(
            ["bash", "--norc", "-c", decoded(line)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert contents() == before, line


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
