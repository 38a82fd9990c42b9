"""glob and grep: the same answers with and without ripgrep, bounded, and only what git does not ignore."""

import contextlib
import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muse.effect.protocol import Workspace
from muse.effect.tool.glob import PATHS_MAX, GlobTool
from muse.effect.tool.grep import ROWS_MAX, TEXT_BYTES_MAX, GrepTool
from muse.effect.tool.patterns import ALTERNATIVES_MAX, Glob, gitignore, literal_start
from muse.effect.tool.walk import walk
from tests.effect.tool.conftest import Harness

pytestmark = pytest.mark.anyio

RIPGREP = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed: nothing to compare with")


@pytest.fixture(params=[pytest.param("ripgrep", marks=needs_ripgrep), "fallback"])
def grep(workspace: Workspace, request: pytest.FixtureRequest) -> Harness:
    return Harness(GrepTool(RIPGREP if request.param == "ripgrep" else None), workspace)


@pytest.fixture
def glob(workspace: Workspace) -> Harness:
    return Harness(GlobTool(), workspace)


def make(root: Path, files: dict[str, bytes | str]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())


# ---- grep


async def test_lines_come_with_path_and_number_in_order(grep: Harness, root: Path) -> None:
    make(root, {"b.py": "x\nfoo(1)\n", "a/c.py": "foo(2)", "a.py": "FOO\nbar\nfoo: 3\n", "a-b": "foo\r\n"})
    assert (await grep.do(pattern="foo")).text == "a/c.py:1:foo(2)\na-b:1:foo\na.py:3:foo: 3\nb.py:2:foo(1)"
    assert (await grep.do(pattern="^foo$")).text == "a-b:1:foo"
    assert (await grep.do(pattern="foo", ignore_case=True, path="a.py")).text == "a.py:1:FOO\na.py:3:foo: 3"
    assert (await grep.do(pattern="foo", path="a")).text == "a/c.py:1:foo(2)"
    assert (await grep.do(pattern="fo+", glob="*.py", output="files")).text == "a/c.py\na.py\nb.py"
    assert (await grep.do(pattern="fo+", glob="!*.py", output="files")).text == "a-b"
    assert (await grep.do(pattern="o", output="count")).text == "a/c.py:1\na-b:1\na.py:1\nb.py:1"


async def test_context_lines_and_gaps_are_marked(grep: Harness, root: Path) -> None:
    make(root, {"a": "1\n2 hit\n3\n4\n5\n6\n7 hit\n8 hit\n", "b": "hit\n"})
    assert (await grep.do(pattern="hit", context=1)).text == (
        "a-1-1\na:2:2 hit\na-3-3\n--\na-6-6\na:7:7 hit\na:8:8 hit\n--\nb:1:hit"
    )


async def test_ignored_and_binary_files_and_gits_own_are_left_out(grep: Harness, root: Path, tmp_path: Path) -> None:
    make(
        root,
        {
            ".git/config": "hit", ".gitignore": "node_modules/\n*.log\n!keep.log\n/build\n",
            "a.log": "hit", "keep.log": "hit",
            "node_modules/x.js": "hit", "src/build": "hit", "build": "hit", ".github/ci.yml": "hit", "bin": b"hit\n\0",
            "sub/.gitignore": "local\n", "sub/local": "hit", "local": "hit", "latin": b"caf\xe9 hit\n",
        },
    )  # fmt: skip
    (root / "link").symlink_to("local")
    os.mkfifo(root / "pipe")
    outside = tmp_path / "outside"
    make(outside, {"secret": "hit"})
    (root / "out").symlink_to(outside)
    found = await grep.do(pattern="hit")
    assert found.text.splitlines() == [
        ".github/ci.yml:1:hit", "keep.log:1:hit", "latin:1:caf\ufffd hit", "local:1:hit", "src/build:1:hit",
    ]  # fmt: skip
    assert (await grep.do(pattern="hit", path="node_modules")).text == "node_modules/x.js:1:hit"
    assert (await grep.do(pattern="hit", path="a.log")).text == "a.log:1:hit"
    for path, says in [
        ("out", "outside the workspace"),
        ("pipe", "is a pipe"),
        ("bin", "is a binary file"),
        ("x", "no file"),
    ]:
        result = await grep.do(pattern="hit", path=path)
        assert (result.status, says in result.text) == ("error", True), result.text


async def test_a_long_answer_is_bounded_and_says_so(grep: Harness, root: Path) -> None:
    make(root, {"a": "hit\n" * 5000})
    lines = (await grep.do(pattern="hit")).text.splitlines()
    assert lines[-2:] == [f"a:{ROWS_MAX}:hit", "(there is more: narrow it with path, glob or a longer pattern)"]
    make(root, {"a": ("hit" + "x" * 400 + "\n") * 500, "b": "hit" + "é" * 5_000_000})
    text = (await grep.do(pattern="hit")).text
    assert TEXT_BYTES_MAX - 500 < len(text.encode()) < TEXT_BYTES_MAX + 100
    assert (await grep.do(pattern="hit", output="count")).text == "a:500"
    make(root, {"b": "hit" + "é" * 500_000})
    assert (await grep.do(pattern="hit", path="b")).text == "b:1:hit" + "é" * 497 + " [...]"


async def test_nothing_found_is_an_answer(grep: Harness, root: Path) -> None:
    result = await grep.do(pattern="nowhere")
    assert (result.status, result.text) == ("ok", "no matches (a shorter pattern or ignore_case may find more)")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "missing argument pattern"),
        ({"pattern": ""}, "argument pattern is empty"),
        ({"pattern": "("}, "argument pattern is not a valid regular expression"),
        ({"pattern": "a\nb"}, "never goes beyond one line"),
        ({"pattern": "a\0"}, "never goes beyond one line"),
        ({"pattern": "\ud800"}, "half a surrogate pair"),
        ({"pattern": "x" * 10_000_000}, "at most 4096"),
        ({"pattern": "x", "glob": "{a"}, "argument glob is not valid"),
        ({"pattern": "x", "glob": 5}, "argument glob must be a string"),
        ({"pattern": "x", "context": -1}, "at least 0"),
        ({"pattern": "x", "context": 1000}, "at most 50"),
        ({"pattern": "x", "output": "json"}, "one of content, files, count"),
        ({"pattern": "x", "path": "../.."}, "outside the workspace"),
        ({"pattern": "x", "path": "/"}, "outside the workspace"),
        ({"pattern": "x", "path": "\0"}, "NUL"),
        ({"pattern": "x", "recursive": True}, "unknown argument"),
    ],
)
async def test_arguments_that_cannot_be_meant_are_named(grep: Harness, args: dict[str, object], says: str) -> None:
    result = await grep.do(**args)
    assert result.status == "error"
    assert says in result.text
    assert len(result.text.encode()) < 1500
    grep.paths(**args)


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(grep: Harness, root: Path) -> None:
    make(root, {"-a": "--help me\n"})
    assert (await grep.do(pattern="--help")).text == "-a:1:--help me"
    assert (await grep.do(pattern="me", path="-a")).text == "-a:1:--help me"


async def test_a_module_in_the_workspace_is_not_run_by_a_search(workspace: Workspace, root: Path) -> None:
    make(root, {"re.py": "raise SystemExit('taken over')\n", "muse/__init__.py": "raise SystemExit('taken over')\n"})
    result = await Harness(GrepTool(None), workspace).do(pattern="taken", output="files")
    assert result.text == "muse/__init__.py\nre.py"


def command_lines() -> Iterator[bytes]:
    """Of all processes of this machine that can be seen (proc_pid_cmdline(5))."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield place.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked at in /proc")
async def test_a_cancelled_search_ends_its_process(workspace: Workspace, root: Path) -> None:
    make(root, {"a": "a" * 60 + "b\n"})
    grep = Harness(GrepTool(None), workspace)
    pattern = f"(a+)+$|{secrets.token_hex(8)}"  # others may run these tests beside us
    results = []
    with anyio.move_on_after(1):
        results.append(await grep.do(pattern=pattern))
    assert [result.status for result in results] == ["cancelled"]
    assert pattern.encode() not in b"".join(command_lines())


WORDS = ["hit", "Hit", "miss", "", "a hit b", "é hit", "\thit", "hit hit"]
NAMES = ["a", "b.py", "c.log", "d-e", ".hidden", "build", "é.txt", "x y", "f.min.js"]
RULES = [
    "*.log",
    "build",
    "/a",
    "!c.log",
    "sub/",
    "sub/a",
    "**/d-e",
    "*.min.*",
    "# no",
    "x\\ y",
    "[ab].py",
    "sub/**",
    "{a,b}*",
]


def random_tree(seed: int, root: Path) -> None:
    dice = random.Random(seed)
    folders = ["", "sub/", "sub/deep/", "build/", "nested/"]
    for folder in folders:
        (root / folder).mkdir(exist_ok=True)
    for folder in folders:
        for name in dice.sample(NAMES, 5):
            if not (root / folder / name).exists():
                end = dice.choice(["\n", "\r\n"])
                content = end.join(dice.choices(WORDS, k=dice.randrange(8))) + dice.choice(["", end])
                data = dice.choice([b"", b"\xef\xbb\xbf", b"\xff"]) + content.encode()
                (root / folder / name).write_bytes(data + (b"\0" if dice.random() < 0.1 else b""))
        if dice.random() < 0.5:
            (root / folder / ".gitignore").write_text("\n".join(dice.sample(RULES, 3)))
        if dice.random() < 0.3:
            (root / folder / ".git").mkdir()


@needs_ripgrep
@given(
    seed=st.integers(0, 2**32),
    pattern=st.sampled_from(["hit", "^hit$", "h.t", "(hit ?)+b?", "é|miss", "^$", r"\bhit\b", "[^ ]hit", "^a"]),
    glob=st.sampled_from(
        ["", "", "*.py", "!*.py", "sub/**", "*.{py,log}", "**/a", "sub/*", "/a", "[a-c]*", "build", "d?e"]
    ),
    path=st.sampled_from([".", ".", "sub", "sub/deep", "build"]),
    context=st.integers(0, 2),
    output=st.sampled_from(["content", "files", "count"]),
    ignore_case=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_fallback_answers_as_ripgrep_does(
    tmp_path_factory: pytest.TempPathFactory, seed: int, path: str, **args: object
) -> None:
    root = tmp_path_factory.mktemp("tree").resolve()
    random_tree(seed, root)
    workspace = Workspace(root=root)

    async def both() -> tuple[str, str]:
        args["path"] = path
        with_ripgrep = await Harness(GrepTool(RIPGREP), workspace).do(**args)
        without = await Harness(GrepTool(None), workspace).do(**args)
        return with_ripgrep.text, without.text

    with_ripgrep, without = anyio.run(both)
    assert without == with_ripgrep


@pytest.mark.parametrize("ripgrep", [pytest.param(RIPGREP, marks=needs_ripgrep), None])
@pytest.mark.parametrize("output", ["content", "files", "count"])
def test_a_binary_file_is_not_found_by_what_stands_before_its_nul(
    tmp_path: Path, ripgrep: str | None, output: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\nmiss\n\0")
    (tmp_path / "text").write_bytes(b"\nmiss\n")
    found = anyio.run(
        lambda: Harness(GrepTool(ripgrep), Workspace(root=tmp_path)).do(pattern="^$", output=output, path=".")
    )
    assert [line.partition(":")[0] for line in found.text.splitlines()] == ["text"]


@needs_ripgrep
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_walk_sees_what_ripgrep_lists(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    root = tmp_path_factory.mktemp("tree").resolve()
    random_tree(seed, root)
    command = [str(RIPGREP), "--no-config", "--files", "--hidden", "--glob=!.git", "--sort=path", "--no-ignore-global"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()
    assert [entry.path for entry in walk(str(root)) if not entry.is_folder] == listed


# ---- glob


async def listed(glob: Harness, pattern: str, **args: object) -> list[str]:
    result = await glob.do(pattern=pattern, **args)
    assert result.status == "ok", result.text
    return result.text.splitlines()


async def test_paths_are_listed_in_order(glob: Harness, root: Path) -> None:
    make(
        root,
        {
            "b.py": "", "a.py": "", "src/app/x.ts": "", "src/app/y.tsx": "", "src/z.py": "", ".hidden/h.py": "",
            ".git/g.py": "", ".gitignore": "dist\n", "dist/d.py": "", "src/app/[id].py": "",
        },
    )  # fmt: skip
    assert await listed(glob, "*.py") == ["a.py", "b.py"]
    assert await listed(glob, "./*.py") == ["a.py", "b.py"]
    assert await listed(glob, f"{root}/*.py") == ["a.py", "b.py"]
    assert await listed(glob, "*") == [".gitignore", ".hidden/", "a.py", "b.py", "src/"]
    assert await listed(glob, "*/") == [".hidden/", "src/"]
    assert await listed(glob, "**/*.py") == [".hidden/h.py", "a.py", "b.py", "src/app/[id].py", "src/z.py"]
    assert await listed(glob, "src/**") == ["src/app/[id].py", "src/app/x.ts", "src/app/y.tsx", "src/z.py"]
    assert await listed(glob, "**/") == [".hidden/", "src/", "src/app/"]
    assert await listed(glob, "src/**/*.{ts,tsx}") == ["src/app/x.ts", "src/app/y.tsx"]
    assert await listed(glob, "{a,src/z}.py") == ["a.py", "src/z.py"]
    assert await listed(glob, "*.ts", path="src/app") == ["src/app/x.ts"]
    assert await listed(glob, r"src/app/\[id\].py") == ["src/app/[id].py"]
    assert await listed(glob, "src/app/[[]id].py") == ["src/app/[id].py"]
    assert await listed(glob, "dist/*") == ["dist/d.py"]
    assert await listed(glob, "src") == ["src/"]


async def test_a_long_list_is_bounded_and_says_so(glob: Harness, root: Path) -> None:
    for number in range(PATHS_MAX + 5):
        (root / f"{number:05}").touch()
    found = await listed(glob, "**")
    assert found[-2:] == [f"{PATHS_MAX - 1:05}", "(5 more: narrow the pattern)"]


async def test_nothing_found_says_how_to_go_on(glob: Harness, root: Path) -> None:
    assert (await listed(glob, "*.py"))[0].startswith("no files match (for files at any depth use **/*.py")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "missing argument pattern"),
        ({"pattern": ""}, "must not be empty"),
        ({"pattern": "\0"}, "nor hold a NUL"),
        ({"pattern": "\udfff"}, "half a surrogate pair"),
        ({"pattern": "[a"}, "is no glob: [ without ]"),
        ({"pattern": "{a"}, "is no glob: { without }"),
        ({"pattern": "a}"}, "is no glob: } without {"),
        ({"pattern": "a\\"}, "is no glob: a backslash"),
        ({"pattern": "{a,b}" * 20}, f"more than {ALTERNATIVES_MAX} patterns"),
        ({"pattern": "*" * 10_000_000}, "at most 4096"),
        ({"pattern": "../*"}, "outside the workspace"),
        ({"pattern": "*/../*"}, "must not go up"),
        ({"pattern": "/etc/*"}, "outside the workspace"),
        ({"pattern": "*", "path": "nowhere"}, 'no folder "nowhere"'),
        ({"pattern": "*", "path": "file"}, "a part of it is a file"),
        ({"pattern": "*", "path": 3}, "argument path must be a string"),
        ({"pattern": "*", "hidden": 3}, "unknown argument"),
    ],
)
async def test_glob_arguments_that_cannot_be_meant_are_named(
    glob: Harness, root: Path, args: dict[str, object], says: str
) -> None:
    (root / "file").touch()
    result = await glob.do(**args)
    assert result.status == "error"
    assert says in result.text
    assert len(result.text.encode()) < 1500
    glob.paths(**args)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [  # the examples of gitignore(5) and of ripgrep's globset, worked by hand
        ("**/foo", ["foo", "a/foo", "a/b/foo"], ["foox", "foo/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "b"]),
        ("abc/**", ["abc/x", "abc/x/y"], ["abc", "xabc/x"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("*.py", ["x.py", ".py"], ["a/x.py", "x.pyc"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[!a-c]x", ["dx"], ["ax", "x"]),
        ("[^a-c]x", ["dx", "^x"], ["ax"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("{a,b/{c,d}}", ["a", "b/c", "b/d"], ["b", "c"]),
        ("{a,}b", ["ab", "b"], ["a"]),
        (r"\{a\*", ["{a*"], ["{ab"]),
        ("[{]a,b[}]", ["{a,b}"], ["a"]),
    ],
)
def test_globs_match_as_documented(pattern: str, matching: list[str], others: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in matching if not glob.matches(path)] == []
    assert [path for path in others if glob.matches(path)] == []


def test_no_glob_takes_long() -> None:
    assert not Glob("*a" * 1000 + "b").matches("a" * 255)
    assert not Glob("**/a/" * 300 + "b").matches("a/" * 300 + "c")
    assert not gitignore("*a" * 1000 + "b").ignores("a" * 255, False)


@given(st.text("a*/{}[]!,\\?-^", max_size=12), st.text("ab/", min_size=1, max_size=6))
@example("[!", "a")
@example("{[}]", "a")
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_glob_or_is_refused(pattern: str, path: str) -> None:
    with contextlib.suppress(ValueError):
        Glob(pattern).matches(path)
    assert gitignore(pattern).ignores(path, False) in (True, False, None)
    literal_start(pattern)


@pytest.mark.parametrize(
    ("pattern", "plain", "rest"),
    [
        ("src/app/*.py", "src/app", "*.py"),
        ("*.py", "", "*.py"),
        ("src", "", "src"),
        ("src/", "", "src/"),
        ("src/app/", "src", "app/"),
        ("/a/b", "/a", "b"),
        ("/b", "/", "b"),
        ("a/{b,c}/d", "a", "{b,c}/d"),
    ],
)
def test_the_plain_beginning_of_a_glob_is_a_folder(pattern: str, plain: str, rest: str) -> None:
    assert literal_start(pattern) == (plain, rest)
