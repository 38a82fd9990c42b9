"""Command lines and what is decided about them without any rule: a table written by hand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from muse.decide.policy import judge
from tests.decide.asked import policy, request

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
for F in a b; do ls; done
printf '%s %%\\n' a
du -sh src/*
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
for PATH in .; do ls; done
for HOME in .; do git status; done
for IFS in x; do ls; done
for a in 'b[$(rm x)]'; do for c in ${!a}; do ls; done; done
for a in 'b[$(rm x)]'; do for c in ${PATH:a}; do ls; done; done
for a in 'b[$(rm x)]'; do cat <<E\n${PATH:a}\nE\ndone
for a in '$(rm x)'; do for c in ${a@P}; do ls; done; done
for a in '$(rm x)'; do cat <<< "${a@P}"; done
cat <<E\n${x:=y}\nE
cat <<<$(cat <<E\ntext\nE)\nrm x\nE\n)
printf '1%n' PATH; ls
printf '%d%-3ln' 1 PATH
uniq src/a*
uniq -- a*
sort -* x
sort -?x
git diff -*
tree -?
test -v a*
[ -v a* ]
tree --fromfile .env
du --files0-from=.env
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
