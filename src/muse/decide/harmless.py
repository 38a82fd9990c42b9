"""Which single commands are plainly harmless: they only read, and nothing they can be told makes them do more.

A table by command and its flags, kept conservative: what is not listed is not harmless. Also the list of places whose
contents are secrets. It knows nothing of rules or modes, and touches no file: symlinks cannot be seen from here.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from muse.decide.shelltext import Stage, Word, names

Check = Callable[[tuple[str, ...]], bool]


class Spec(msgspec.Struct, frozen=True):
    """What a command must not be given. `long` also refuses abbreviations; `short` are letters in any cluster.

    `literal`: no file name patterns, since one more argument, or another, would change what the command does.
    """

    long: tuple[str, ...] = ()
    short: str = ""
    check: Check | None = None
    names_only: bool = False
    recursive: bool = False
    literal: bool = False


# -- checks of single commands: they get the arguments --------------------------------------------------------------


def _nothing(args: tuple[str, ...]) -> bool:
    return not args


def _positionals(args: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(arg for arg in args if not arg.startswith("-") or arg == "-")


_DATE: Final = re.compile(
    r"\+.*|-u|-R|-I[a-z]*|--utc|--universal|--date=.*|--iso-8601(=[a-z]+)?|--rfc-3339=[a-z]+", re.DOTALL
)


def _date(args: tuple[str, ...]) -> bool:
    return all(_DATE.fullmatch(arg) for arg in args)


def _uniq(args: tuple[str, ...]) -> bool:
    return len(_positionals(args)) <= 1


_FIND_TESTS: Final = names(
    "-name -iname -path -ipath -wholename -iwholename -type -xtype -maxdepth -mindepth -not -and -or -a -o -size "
    "-mtime -mmin -ctime -cmin -atime -amin -newer -empty -print -print0 -prune -perm -user -group -uid -gid -nouser "
    "-nogroup "
    "-L -H -P -xdev -mount -regex -iregex -regextype -depth -follow -readable -writable -executable -ls -printf -quit "
    "-true -false -links -inum -lname -ilname -daystart -noleaf -samefile -E -s -x"
)


def _find(args: tuple[str, ...]) -> bool:
    return all(arg in _FIND_TESTS or not arg.startswith("-") or re.fullmatch(r"-[0-9]+|-O[0-3]", arg) for arg in args)


def _sed(args: tuple[str, ...]) -> bool:
    """Only `sed -n 10,20p FILE...`: every other script may write files or run commands."""
    address = r"(?:[0-9]+|\$)(?:,(?:[0-9]+|\$))?[pq]"
    if len(args) < 2 or args[0] != "-n":
        return False
    return re.fullmatch(rf"{address}(?:;{address})*;?", args[1]) is not None and not any(
        arg.startswith("-") for arg in args[2:]
    )


def _set(args: tuple[str, ...]) -> bool:
    return bool(args) and all(re.fullmatch(r"[-+][eux]*o?|pipefail", arg) for arg in args)


def _numbers(args: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"[0-9]+(\.[0-9]+)?[smh]?", arg) for arg in args)


def _test(args: tuple[str, ...]) -> bool:
    # `test -v 'a[$(command)]'` runs the command
    return not any(set(arg) & set("$`[") for arg in args)


_COUNTS_INTO: Final = re.compile(r"%[-+ #'0-9.*$]*[hlLjztq]*n")


def _printf(args: tuple[str, ...]) -> bool:
    # `-v NAME` and `%n` assign a variable, which may be PATH
    return not any(arg.startswith("-v") or _COUNTS_INTO.search(arg) for arg in args)


def _cd(args: tuple[str, ...]) -> bool:
    return len(args) == 1 and not args[0].startswith("-") and not leaves_workspace(args[0])


def _looks_up(args: tuple[str, ...]) -> bool:
    return bool(args) and args[0] in {"-v", "-V"}


def _hostname(args: tuple[str, ...]) -> bool:
    return all(arg in {"-f", "-s", "-i", "-I", "-d"} for arg in args)


# -- git ---------------------------------------------------------------------------------------------------------------

_GIT_LONG: Final = (
    "output",
    "ext-diff",
    "textconv",
    "filters",
    "exec",
    "upload-pack",
    "receive-pack",
    "show-signature",
)
_BRANCH_FLAGS: Final = re.compile(
    r"-[arv]+|-vv|--list|--all|--remotes|--verbose|--show-current|--contains|--no-contains|--merged|--no-merged"
    r"|--points-at|--sort=.*|--format=.*|--column|--no-column|--color(=.*)?|--no-color|--ignore-case|-i"
)
_TAG_FLAGS: Final = re.compile(
    r"-l|-n[0-9]*|--list|--contains|--no-contains|--merged|--no-merged|--points-at|--sort=.*|--format=.*|--column"
)
_ASKS_FOR_ONE: Final = frozenset({"--contains", "--no-contains", "--merged", "--no-merged", "--points-at"})


def _listing(args: tuple[str, ...], flags: re.Pattern[str], list_flags: frozenset[str]) -> bool:
    """Only listing flags; a name only with a list flag, or as the value of --contains and its like."""
    given = 0
    for position, arg in enumerate(args):
        if arg.startswith("-"):
            if not flags.fullmatch(arg):
                return False
        elif not (position and args[position - 1] in _ASKS_FOR_ONE):
            given += 1
    return given == 0 or bool(list_flags.intersection(args))


def _git_branch(args: tuple[str, ...]) -> bool:
    return _listing(args, _BRANCH_FLAGS, frozenset({"--list"}))


def _git_tag(args: tuple[str, ...]) -> bool:
    return _listing(args, _TAG_FLAGS, frozenset({"-l", "--list"}))


def _git_remote(args: tuple[str, ...]) -> bool:
    return args in {(), ("-v",), ("--verbose",)} or (len(args) == 2 and args[0] == "get-url")


def _first_is(*words: str, empty: bool = False) -> Check:
    return lambda args: args[0] in words if args else empty


def _git_grep(args: tuple[str, ...]) -> bool:
    return not any(
        (arg.startswith("-") and not arg.startswith("--") and "O" in arg) or arg.startswith("--op") for arg in args
    )


_GIT: Final[dict[str, Check | None]] = {
    "status": None,
    "log": None,
    "diff": None,
    "show": None,
    "shortlog": None,
    "whatchanged": None,
    "rev-parse": None,
    "rev-list": None,
    "ls-files": None,
    "ls-tree": None,
    "cat-file": lambda args: not any(arg.startswith("--") for arg in args),
    "blame": None,
    "annotate": None,
    "describe": None,
    "name-rev": None,
    "merge-base": None,
    "for-each-ref": None,
    "count-objects": None,
    "check-ignore": None,
    "grep": _git_grep,
    "branch": _git_branch,
    "tag": _git_tag,
    "remote": _git_remote,
    "stash": _first_is("list", "show"),
    "reflog": _first_is("show", empty=True),
    "worktree": _first_is("list"),
}
_GIT_GLOBAL: Final = frozenset({"--no-pager", "-P", "--no-optional-locks"})


def _git(args: tuple[str, ...]) -> bool:
    if args == ("--version",):
        return True
    while args and args[0] in _GIT_GLOBAL:
        args = args[1:]
    if not args or args[0] not in _GIT:
        return False
    rest = args[1:]
    if any(_forbidden_long(arg, _GIT_LONG) for arg in rest):
        return False
    check = _GIT[args[0]]
    return check is None or check(rest)


# -- the table ---------------------------------------------------------------------------------------------------------

_PLAIN: Final = (
    "cat head tail nl tac rev cut paste join comm fold tr expand unexpand od hexdump strings base64 "
    "md5sum sha1sum sha256sum sha512sum cksum cmp wc"
)
_NAMES: Final = "ls pwd stat df basename dirname realpath readlink which type whoami id groups uname arch nproc"
_SILENT: Final = "true false :"
_COUNTED: Final = "sleep exit break continue wait"

TABLE: Final[dict[str, Spec]] = {
    **{name: Spec() for name in _PLAIN.split()},
    **{name: Spec(names_only=True) for name in _NAMES.split()},
    **{name: Spec(names_only=True) for name in _SILENT.split()},
    "echo": Spec(names_only=True),
    "printf": Spec(check=_printf, names_only=True, literal=True),
    "seq": Spec(check=lambda args: all(not a.startswith("-") or a[1:2].isdigit() for a in args), names_only=True),
    **{name: Spec(check=_numbers) for name in _COUNTED.split()},
    "test": Spec(check=_test, names_only=True, literal=True),
    "[": Spec(check=_test, names_only=True, literal=True),
    "set": Spec(check=_set),
    "cd": Spec(check=_cd, literal=True),
    "du": Spec(short="X", long=("files0-from", "exclude-from"), names_only=True),
    "date": Spec(check=_date),
    "hostname": Spec(check=_hostname),
    "tree": Spec(short="oR", long=("output", "fromfile", "fromtabfile"), names_only=True),
    "file": Spec(short="CmzZf", long=("compile", "magic-file", "uncompress", "uncompress-noreport", "files-from")),
    "grep": Spec(recursive=True),
    "egrep": Spec(recursive=True),
    "fgrep": Spec(recursive=True),
    "rg": Spec(short="z", long=("pre", "pre-glob", "hostname-bin", "search-zip"), recursive=True),
    "find": Spec(check=_find, names_only=True),
    "sort": Spec(short="oT", long=("output", "compress-program", "temporary-directory")),
    "uniq": Spec(check=_uniq, literal=True),
    "diff": Spec(short="l", long=("paginate",), recursive=True),
    "sed": Spec(check=_sed),
    "git": Spec(check=_git, recursive=True),
    "command": Spec(check=_looks_up, names_only=True),
}
# not yarn, cargo or pytest: they run what the workspace configures before they say their version
_VERSIONED: Final = names(
    "python python3 pip pip3 uv ruff node npm deno java javac gcc g++ clang make cmake ruby perl php docker rg fd jq "
    "curl wget tar sqlite3 ffmpeg"
)
_QUIET_WRAPPERS: Final = frozenset({"time", "timeout", "nice", "command", "stdbuf", "xargs"})
_XARGS_FLAGS: Final = frozenset({"-0", "-r", "-n", "-n1", "-L", "-l"})
_HARMLESS_NAMES: Final = re.compile(r"LANG|LC_[A-Z]+|TZ|NO_COLOR|CI|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE")
HARMLESS_FILES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
HARMLESS_SOURCES: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/zero"})


def is_harmless(stage: Stage, workspace: str = "") -> bool:
    """Whether the stage, taken alone, only reads. Its redirections to files are judged by the caller.

    A wrapper passes when it adds nothing of its own; what it runs is a stage and is asked about by itself.
    """
    if stage.opaque or stage.odd or not all(harmless_assignment(word) for word in stage.assignments):
        return False
    if any(not _may_read(word, recursive=False, workspace=workspace) for word in stage.reads):
        return False
    if not stage.words:
        return not stage.assignments
    first, *rest = stage.words
    if first.dynamic or first.glob or first.text != first.text.rsplit("/", 1)[-1]:
        return False
    if any(word.dynamic for word in rest):
        return False
    args = tuple(_inside(word.text, workspace) for word in rest)
    if first.text in _VERSIONED and args in {("--version",), ("-V",)}:
        return True
    if first.text == "go" and args == ("version",):
        return True
    if first.text in _QUIET_WRAPPERS and first.text != "command":
        # /usr/bin/time can write to a file, xargs can read one
        return first.text not in {"time", "xargs"} or all(arg in _XARGS_FLAGS for arg in args if arg.startswith("-"))
    if first.text == "command" and not _looks_up(args):
        return True
    spec = TABLE.get(first.text)
    return spec is not None and _allows(spec, stage, args, tuple(rest), workspace)


def _allows(spec: Spec, stage: Stage, args: tuple[str, ...], words: tuple[Word, ...], workspace: str) -> bool:
    bounded = bool(spec.long or spec.short or spec.check)
    if stage.open and (bounded or not spec.names_only):
        return False
    for arg, word in zip(args, words, strict=True):
        if word.glob and (spec.literal or (bounded and arg[:1] in "*?[-")):
            # a file name could be an option
            return False
        if _forbidden_long(arg, spec.long) or _forbidden_short(arg, spec.short):
            return False
        if not spec.names_only and not _may_read(word, recursive=spec.recursive, workspace=workspace):
            return False
    return spec.check is None or spec.check(args)


def harmless_assignment(word: Word) -> bool:
    """Whether `NAME=value` before a command changes only how it prints."""
    name, _, value = word.text.partition("=")
    if word.dynamic:
        return False
    return _HARMLESS_NAMES.fullmatch(name) is not None or (name in {"PAGER", "GIT_PAGER"} and value == "cat")


def _forbidden_long(arg: str, options: tuple[str, ...]) -> bool:
    if not arg.startswith("--") or len(arg) < 3:
        return False
    given = arg[2:].split("=", 1)[0]
    return any(name.startswith(given) for name in options)


def _forbidden_short(arg: str, letters: str) -> bool:
    return arg.startswith("-") and not arg.startswith("--") and not set(letters).isdisjoint(arg[1:])


# -- places ------------------------------------------------------------------------------------------------------------

_SECRET_NAMES: Final = names(
    ".ssh .gnupg .aws .azure .kube .netrc .pgpass .git-credentials .npmrc .pypirc .password-store .vault-token "
    ".my.cnf .s3cfg .boto .terraformrc .htpasswd "
    "credentials.json .bash_history .zsh_history .python_history id_rsa id_dsa id_ecdsa id_ed25519"
)
_SECRET_ENDINGS: Final = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks", ".ppk")
_SAMPLE_ENDINGS: Final = (".example", ".sample", ".template", ".dist", ".pub")
_SECRET_PATHS: Final = (
    "etc/shadow",
    "etc/shadow-",
    "etc/gshadow",
    "etc/sudoers",
    "etc/sudoers.d",
    ".local/share/keyrings",
    ".docker/config.json",
    ".config/gh",
    ".config/gcloud",
    ".config/muse",
    ".local/share/muse",
    ".git/config",
)
_CUTS: Final = re.compile(r"[=:,@]")


def is_secret(path: str) -> bool:
    """Whether a path, by its name alone, is likely to hold credentials."""
    parts = [part.casefold() for part in path.split("/") if part not in {"", "."}]
    for part in parts:
        if part.endswith(_SAMPLE_ENDINGS):
            continue
        if part in _SECRET_NAMES or part == ".env" or part.startswith(".env.") or part == ".envrc":
            return True
        if part.endswith(_SECRET_ENDINGS):
            return True
    joined = "/" + "/".join(parts) + "/"
    if any(f"/{secret}/" in joined for secret in _SECRET_PATHS):
        return True
    return leaves_workspace(path) and re.search(r"/(?:proc|dev)/", joined) is not None


def leaves_workspace(path: str) -> bool:
    """Whether a static path, as written in a command, leads or may lead out of the working folder."""
    return path.startswith(("/", "~")) or ".." in path.split("/")


def _inside(text: str, workspace: str) -> str:
    """An absolute path below the workspace, made relative to it."""
    if workspace and len(workspace) > 1:
        root = workspace.rstrip("/")
        if text == root:
            return "."
        if text.startswith(root + "/"):
            return text[len(root) + 1 :] or "."
    return text


def _may_read(word: Word, *, recursive: bool, workspace: str) -> bool:
    """Whether the file that a word may name can be shown. Values after `=`, `:` and in `-fPATH` are looked at too."""
    if word.dynamic:
        return False
    if word.text in HARMLESS_SOURCES:
        return True
    text = _inside(word.text, workspace)
    candidates = [text, *_CUTS.split(text)]
    if text.startswith("-") and not text.startswith("--"):
        candidates += [text[2:]]
    for candidate in candidates:
        outside = leaves_workspace(candidate)
        if is_secret(candidate) or (outside and (recursive or word.glob)):
            return False
        if word.glob and any(
            part.startswith((".", "[", "?")) and part not in {".", ".."} for part in _parts(candidate)
        ):
            # a pattern that can become a hidden file, such as .e* for .env
            return False
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if any(sign in part for sign in "*?[")]
