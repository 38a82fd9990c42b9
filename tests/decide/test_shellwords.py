"""The splitter against hand-written cases and against what bash itself does."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muse.decide.shelltext import COMMAND_CHARS_MAX
from muse.decide.shellwords import loose_stages, quoted, stages

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="the comparison needs bash")


def texts(command: str) -> list[str] | None:
    """The words of each stage joined by |, in the order in which they were found."""
    found = stages(command)
    return None if found is None else ["|".join(word.text for word in stage.words) for stage in found]


SPLITS = [
    ("ls", ["ls"]),
    ("ls -l  'a b'", ["ls|-l|a b"]),
    ("ls;rm x", ["ls", "rm|x"]),
    ("ls\nrm x", ["ls", "rm|x"]),
    ("ls & rm x", ["ls", "rm|x"]),
    ("ls && rm x || pwd", ["ls", "rm|x", "pwd"]),
    ("ls | rm x", ["ls", "rm|x"]),
    ("ls |& rm x", ["ls", "rm|x"]),
    ("(rm x)", ["rm|x"]),
    ("{ rm x; }", ["rm|x"]),
    ("! rm x", ["rm|x"]),
    ("if true; then rm x; fi", ["true", "rm|x"]),
    ("while true; do rm x; done", ["true", "rm|x"]),
    ("for f in a b; do rm $f; done", ["rm|$f"]),
    ("for f in $(rm x); do ls; done", ["rm|x", "ls"]),
    ("ls $(rm x)", ["rm|x", "ls|$(rm x)"]),
    ('ls "$(rm x)"', ["rm|x", "ls|$(rm x)"]),
    ("ls '$(rm x)'", ["ls|$(rm x)"]),
    ("ls `rm x`", ["rm|x", "ls|`rm x`"]),
    ('ls "`rm x`"', ["rm|x", "ls|`rm x`"]),
    ("diff <(rm x) <(ls)", ["rm|x", "ls", "diff|<(rm x)|<(ls)"]),
    ("ls # ; rm x", ["ls"]),
    ("ls a#b", ["ls|a#b"]),
    ("ls # comment\nrm x", ["ls", "rm|x"]),
    ("r''m x", ["rm|x"]),
    ('"rm" x', ["rm|x"]),
    ("\\rm x", ["rm|x"]),
    ("r\\\nm x", ["rm|x"]),
    ("$'\\x72m' x", ["rm|x"]),
    ("$'\\162m' x", ["rm|x"]),
    ("FOO=bar rm x", ["rm|x"]),
    ("> file", [""]),
    ("2>&1 ls", ["ls"]),
    ("ls >a 2>b <c", ["ls"]),
    ("cat <<EOF | sh\nrm x\nEOF", ["cat", "sh"]),
    ("cat <<EOF\n$(rm x)\nEOF", ["cat", "rm|x"]),
    ("cat <<'EOF'\n$(rm x)\nEOF", ["cat"]),
    ("cat <<EOF\ntext\nEOF\nrm x", ["cat", "rm|x"]),
    ("cat <<-EOF\n\ttext\n\tEOF\nrm x", ["cat", "rm|x"]),
    ("time rm x", ["time", "rm|x"]),
    ("time { rm x; }", ["time", "rm|x"]),
    ("env X=1 rm y", ["env|X=1|rm|y", "rm|y"]),
    ("env -u A -i X=1 rm y", ["env|-u|A|-i|X=1|rm|y", "rm|y"]),
    ("sudo -u bob rm x", ["sudo|-u|bob|rm|x", "rm|x"]),
    ("sudo -nubob rm x", ["sudo|-nubob|rm|x", "rm|x"]),
    ("doas rm x", ["doas|rm|x", "rm|x"]),
    ("nohup rm x &", ["nohup|rm|x", "rm|x"]),
    ("timeout -s KILL 5 rm x", ["timeout|-s|KILL|5|rm|x", "rm|x"]),
    ("nice -n 5 rm x", ["nice|-n|5|rm|x", "rm|x"]),
    ("command rm x", ["command|rm|x", "rm|x"]),
    ("command -v rm", ["command|-v|rm"]),
    ("exec rm x", ["exec|rm|x", "rm|x"]),
    ("eval rm x", ["eval|rm|x", "rm|x"]),
    ("eval 'ls; rm x'", ["eval|ls; rm x", "ls", "rm|x"]),
    ("sh -c 'ls; rm x'", ["sh|-c|ls; rm x", "ls", "rm|x"]),
    ("bash -lc 'rm x'", ["bash|-lc|rm x", "rm|x"]),
    ("bash -o pipefail -c 'rm x'", ["bash|-o|pipefail|-c|rm x", "rm|x"]),
    ("/bin/sh -c 'sudo rm x'", ["/bin/sh|-c|sudo rm x", "sudo|rm|x", "rm|x"]),
    ("ssh host rm x", ["ssh|host|rm|x", "rm|x"]),
    ("xargs -0 -n 1 rm", ["xargs|-0|-n|1|rm", "rm"]),
    ("xargs -I{} rm {}", ["xargs|-I{}|rm|{}", "rm|{}"]),
    ("find . -exec rm {} \\;", ["find|.|-exec|rm|{}|;", "rm|{}"]),
    ("find . -exec ls {} + -exec rm {} \\;", ["find|.|-exec|ls|{}|+|-exec|rm|{}|;", "ls|{}", "rm|{}"]),
    ("watch -n 1 'rm x'", ["watch|-n|1|rm x", "rm|x"]),
    ("busybox rm x", ["busybox|rm|x", "rm|x"]),
    ("stdbuf -oL rm x", ["stdbuf|-oL|rm|x", "rm|x"]),
    ("su -c 'rm x'", ["su|-c|rm x", "rm|x"]),
    ("trap 'rm x' EXIT", ["trap|rm x|EXIT", "rm|x"]),
    ("env -S 'rm x'", ["env|-S|rm x", "rm|x"]),
]


@pytest.mark.parametrize(("command", "expected"), SPLITS)
def test_every_command_in_a_line_is_a_stage(command: str, expected: list[str]) -> None:
    assert texts(command) == expected


REFUSED = [
    "ls (",
    "ls )",
    "ls 'open",
    'ls "open',
    "ls `open",
    "ls $(open",
    "ls \\",
    "f() { rm x; }",
    "function f { rm x; }",
    "case x in x) rm x;; esac",
    "[[ -f x ]]",
    "((x=1))",
    "echo $((1+1))",
    "echo $[1+1]",
    "a=(rm x)",
    "a[0]=1",
    "echo !(x)",
    "coproc rm x",
    "cat <<EOF\nno end",
    "cat <<EOF",
    "ls\0rm x",
    "ls\rrm x",
    "ls\x1b[2K",
    "ls \u202e x",
    "ls\u00a0x",
    "ls \u200b",
    "ls \uff1b rm x",
    "ls \ud800",
    "ls ${x:-$(rm y)}",
    "ls ${x:-'}'}",
    "ls ${ rm x; }",
    "{x}>file rm y",
    "echo $'a\\' ; rm x ; echo '",
    "echo $'a\\0b'",
    "echo &\\\n& rm x",
    "echo $\\\n(rm x)",
    "ls ;; rm",
    "- x",
    "sh -c 'ls ('",
    "<& x ls",
    "(" * 40 + "ls" + ")" * 40,
    "x" * (COMMAND_CHARS_MAX + 1),
]


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_not_certain_is_refused(command: str) -> None:
    assert stages(command) is None


def test_redirections_are_kept_with_their_stage() -> None:
    found = stages("ls 2>&1 >out 2>>err <in >|over <>both >&all")
    assert found is not None
    (stage,) = found
    assert [word.text for word in stage.writes] == ["out", "err", "over", "both", "all"]
    assert [word.text for word in stage.reads] == ["in"]


def test_the_redirection_of_a_group_is_not_lost() -> None:
    found = stages("{ ls; } > out; for f in a; do ls; done >> more; (ls) > third")
    assert found is not None
    assert [word.text for stage in found for word in stage.writes] == ["out", "more", "third"]


@pytest.mark.parametrize(
    "command", ["sh", "ls | bash", 'eval "$x"', 'sh -c "$x"', "sudo -s", "ssh -Z host ls", "fish -c ls"]
)
def test_code_that_is_not_shown_is_said(command: str) -> None:
    found = stages(command)
    assert found is not None
    assert any(stage.opaque for stage in found)


@pytest.mark.parametrize(
    "command", ["echo $x", "echo $(ls)", "echo {a,b}", "echo {1..3}", "echo $1", 'echo "$@"', "echo ${x%.c}"]
)
def test_expansions_are_dynamic(command: str) -> None:
    found = stages(command)
    assert found is not None
    assert any(word.dynamic for word in found[-1].words)


@pytest.mark.parametrize("command", ["echo '$x'", "echo \\$x", "find {}", "echo $?", "echo a$", "echo '{a,b}'"])
def test_quoted_signs_are_static(command: str) -> None:
    found = stages(command)
    assert found is not None
    assert not any(word.dynamic for word in found[-1].words)


@pytest.mark.parametrize(
    ("command", "name"),
    [("$'ls' x", "ls"), ("ls &> x", "ls"), ('$"ls" x', "ls")],
)
def test_lines_that_shells_read_differently_are_marked(command: str, name: str) -> None:
    found = stages(command)
    assert found is not None
    assert found[0].odd


def test_the_loose_split_finds_a_command_in_a_broken_line() -> None:
    found = loose_stages("echo $((1+1)); r''m -rf x")
    assert ["rm", "-rf", "x"] in [[word.text for word in stage.words] for stage in found]


# -- bash as the reference ---------------------------------------------------------------------------------------------

STATIC = [
    "a 'b c' d\\ e",
    '"a\\$b\\`c\\"d\\\\e\\f"',
    "'a\\b'",
    "a''b\"\"c",
    "\"\" ''",
    "$'a\\tb' $'\\x41\\102'",
    "a\\\nb",
    '"a\\\nb"',
    "a#b c",
    "a=b --c=d",
    "'single'\"double\"plain",
    '"it\'s" \'say "hi"\'',
    "\\'",
    "a\tb",
    "{} %",
    "\"a'b\"'c\"d'",
    "é 日本",
    "$",
    "a$ b",
]


def accepted_by_bash(line: str) -> bool:
    assert BASH is not None
    return subprocess.run([BASH, "--norc", "-n", "-c", line], capture_output=True, check=False).returncode == 0


def words_of_bash(line: str) -> list[str]:
    assert BASH is not None
    done = subprocess.run(
        [BASH, "--norc", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    return done.stdout.decode().split("\0")[:-1]


@needs_bash
@pytest.mark.parametrize("line", STATIC)
def test_static_words_are_those_of_bash(line: str) -> None:
    found = stages(f"echo {line}")
    assert found is not None
    assert len(found) == 1
    assert [word.text for word in found[0].words[1:]] == words_of_bash(line)


WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "a",
                "b c",
                "'q r'",
                '"d e"',
                "\\ ",
                "\\'",
                "''",
                '""',
                "x=1",
                "-n",
                "#",
                " ",
                "\t",
                "\\\n",
                "~x",
                "%",
                "$",
            ]
        ),
        st.text("ab'\"\\ #;", max_size=6),
    ),
    max_size=6,
).map("".join)


@needs_bash
@settings(max_examples=120, deadline=None)
@given(WORDS)
def test_any_static_line_is_split_as_bash_splits_it(line: str) -> None:
    found = stages(f"echo {line}")
    if found is None or len(found) != 1:
        return
    if any(word.dynamic or word.glob or set("~$") & set(word.text) for word in found[0].words):
        return
    if not accepted_by_bash(f"echo {line}"):
        return  # such as `a; ;`: bash runs nothing of it
    assert [word.text for word in found[0].words[1:]] == (words_of_bash(line) if len(found[0].words) > 1 else [])


@needs_bash
@pytest.mark.parametrize("command", [command for command, _ in SPLITS])
def test_the_hand_written_lines_are_valid_for_bash(command: str) -> None:
    assert BASH is not None
    done = subprocess.run([BASH, "-n", "-c", command], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


PIECES = st.sampled_from(
    [
        "probe",
        "probe ",
        ";",
        "&",
        "|",
        "&&",
        "||",
        "\n",
        "(",
        ")",
        "{ ",
        "; }",
        "$(",
        "`",
        "'",
        '"',
        "\\",
        "#",
        " ",
        "<",
        ">f",
        "<<E\n",
        "\nE\n",
        "$'",
        "if ",
        "then ",
        "; fi",
        "! ",
        "time ",
        "a=b ",
        "do ",
        "for x in a; ",
        "; done",
        "2>&1",
        "echo ",
        "eval ",
        "sh -c ",
        "{a,b}",
        "$x",
        "${x}",
        "<(",
        "while ",
    ]
)


def probe_runs(line: str) -> bool:
    """Whether bash calls the function `probe` when it is given `line`. Nothing can be written: /proc takes no files."""
    assert BASH is not None
    script = "exec 9>&1 >/dev/null 2>&1 </dev/null; probe() { printf RAN >&9; }; export -f probe\n" + line
    done = subprocess.run(
        [BASH, "--norc", "-c", script],
        capture_output=True,
        timeout=20,
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
        cwd="/proc",
    )
    return b"RAN" in done.stdout


@needs_bash
@pytest.mark.parametrize("line", ["probe", "if probe; then :; fi", "a=$(probe)", "eval probe", "echo a\nprobe"])
def test_the_probe_tells_when_it_runs(line: str) -> None:
    assert probe_runs(line)


@needs_bash
@settings(max_examples=250, deadline=None)
@given(st.lists(PIECES, max_size=9).map("".join))
def test_bash_never_runs_a_command_that_was_not_found(line: str) -> None:
    """`probe` is a function that leaves a mark; a line whose stages do not name it must not call it."""
    found = stages(line)
    if found is None or any(stage.opaque or any(word.dynamic for word in stage.words) for stage in found):
        return
    if any(word.text == "probe" for stage in found for word in stage.words[:1]):
        return
    if any("probe" in word.text for stage in found for word in (*stage.words[:1], *stage.assignments)):
        return
    assert not probe_runs(line)


@given(st.text())
def test_any_text_is_split_or_refused(command: str) -> None:
    found = stages(command)
    assert found is None or all(stage.parent < index for index, stage in enumerate(found))
    loose_stages(command)


@needs_bash
@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12))
def test_a_quoted_word_is_one_word_for_bash(text: str) -> None:
    assert words_of_bash(quoted(text)) == [text]
