"""Commands that run another command, and how to find it.

Only the table and the walk over a wrapper's own options stand here. What cannot be found with certainty is said
(`certain=False`), so that the caller asks. It knows nothing of rules.
"""

import re
from typing import Final

import msgspec

from muse.decide.shelltext import Stage, Word, names


class Inner(msgspec.Struct, frozen=True):
    """What a wrapper runs: either `words`, or `code` for a shell to read. `dynamic`: the code has expansions in it."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    code: str = ""
    dynamic: bool = False
    certain: bool = True
    open: bool = False


class _Spec(msgspec.Struct, frozen=True):
    """`flags` and `valued` name options without and with a value; `skip` words stand before the command."""

    flags: str = ""
    valued: str = ""
    skip: int = 0
    assigns: bool = False
    joins: bool = False


SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash"})
OTHER_SHELLS: Final = frozenset({"fish", "csh", "tcsh", "pwsh", "nu", "elvish", "xonsh"})

_SPECS: Final = {
    "env": _Spec("-i -0 -v --ignore-environment --null --debug", "-u --unset -C --chdir", assigns=True),
    "sudo": _Spec(
        "-n -E -H -S -b -k -A -P -B --non-interactive --preserve-env --set-home --stdin --background",
        "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir",
        assigns=True,
    ),
    "doas": _Spec("-n", "-u -C"),
    "nohup": _Spec(),
    "setsid": _Spec("-c -f -w --ctty --fork --wait"),
    "time": _Spec("-p -v -a -q --portability --verbose", "-o -f --output --format"),
    "timeout": _Spec("--preserve-status --foreground -v --verbose", "-s -k --signal --kill-after", skip=1),
    "nice": _Spec(valued="-n --adjustment"),
    "ionice": _Spec("-t --ignore", "-c -n --class --classdata"),
    "stdbuf": _Spec(valued="-i -o -e --input --output --error"),
    "command": _Spec("-p"),
    "builtin": _Spec(),
    "exec": _Spec("-c -l", "-a"),
    "chroot": _Spec(valued="--userspec --groups", skip=1),
    "flock": _Spec("-s -x -e -u -n -o -F", "-w -E", skip=1),
    "taskset": _Spec("-a -c", skip=1),
    "chrt": _Spec("-f -r -o -b -i", skip=1),
    "busybox": _Spec(),
    "toybox": _Spec(),
    "watch": _Spec("-d -t -e -g -b -c -x --no-title --color --exec --errexit --chgexit", "-n --interval", joins=True),
    "eval": _Spec(joins=True),
    "ssh": _Spec(
        "-A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -V -v -X -x -Y -y -4 -6",
        "-p -i -l -F -L -R -D -J -b -c -E -e -I -m -O -Q -S -W -w -B -o",
        skip=1,
        joins=True,
    ),
    "xargs": _Spec(
        "-0 -r -t -p -x --null --no-run-if-empty --verbose --interactive --exit",
        "-n -P -L -d -a -E -s -I --max-args --max-procs --max-lines --delimiter --arg-file --max-chars",
    ),
    "unshare": _Spec(),
    "nsenter": _Spec(),
    "setpriv": _Spec(),
    "systemd-run": _Spec(),
    "strace": _Spec("-f -q -v -T -t", "-e -o -p -s"),
    "ltrace": _Spec("-f", "-e -o"),
    "chronic": _Spec(),
    "unbuffer": _Spec(),
    "caffeinate": _Spec("-d -i -m -s -u", "-t -w"),
    "faketime": _Spec(skip=1),
    "bwrap": _Spec(),
    "firejail": _Spec(),
    "proxychains": _Spec("-q", "-f"),
    "entr": _Spec("-c -d -n -p -r -z"),
    "parallel": _Spec(),
}
_NAMED: Final = frozenset({"find", "su", "script", "trap", "alias", "source", ".", "env", "command"})
WRAPPERS: Final = frozenset(_SPECS) | SHELLS | OTHER_SHELLS | _NAMED
_UNCERTAIN: Final = frozenset(
    {"unshare", "nsenter", "setpriv", "systemd-run", "bwrap", "firejail", "entr", "parallel", "ssh"}
)
RUNNERS: Final = names(
    "uvx npx bunx direnv tmux screen at batch expect gdb valgrind numactl proxychains4 torsocks cpulimit gosu su-exec "
    "runuser pkexec sg fakeroot xvfb-run dbus-run-session systemd-inhibit rlwrap setarch linux32 linux64 chpst prlimit "
    "perf ccache hyperfine dotenv chronic newgrp start-stop-daemon daemonize"
)
LAUNCHERS: Final = RUNNERS | names(
    "uv uvx poetry pipenv pdm hatch rye npx bunx pnpm npm yarn bun deno docker podman kubectl nix direnv mise asdf "
    "pyenv rbenv bundle cargo go make just python python3 perl ruby node php lua awk gawk mawk tmux screen at batch "
    "fd fdfind expect gdb rsync tar git vim vi ex ed emacs"
)

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_EXEC_FLAGS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def inner_commands(stage: Stage) -> tuple[Inner, ...]:
    """What `stage` runs besides itself; () for a plain command. An uncertain, empty one: code that is not shown."""
    name = stage.name.casefold()
    if not stage.words or name not in WRAPPERS:
        return ()
    words = stage.words[1:]
    if name in SHELLS:
        found = _shell_code(words)
        return () if found is None else (found,)
    if name in {"source", "."}:
        return () if words and not words[0].dynamic and words[0].text != "/dev/stdin" else (Inner(certain=False),)
    if name in OTHER_SHELLS:
        return (Inner(certain=False),)
    if name == "find":
        return _find_commands(words)
    if name in {"su", "script"} or (name == "flock" and any(word.text == "-c" for word in words)):
        return _after_flag_c(words)
    if name == "trap":
        return tuple(_code(word) for word in words[:1] if not word.text.startswith("-"))
    if name == "alias":
        return tuple(_code(Word(w.text.split("=", 1)[1], w.dynamic)) for w in words if "=" in w.text)
    if name == "command" and words and words[0].text in {"-v", "-V", "-pv", "-pV"}:
        return ()
    return _generic(name, words)


def is_wrapper(stage: Stage) -> bool:
    """Whether the command is one that runs another."""
    return stage.name.casefold() in WRAPPERS


def _code(word: Word) -> Inner:
    return Inner(code=word.text, dynamic=word.dynamic or word.glob, certain=not word.dynamic)


def _shell_code(words: tuple[Word, ...]) -> Inner | None:
    """The code of `sh -c CODE`. None for `sh FILE`, a program like any other; else the code is not shown."""
    has_code = False
    position = 0
    while position < len(words) and words[position].text[:1] in {"-", "+"} and len(words[position].text) > 1:
        text = words[position].text
        if words[position].dynamic:
            return Inner(certain=False)
        if text == "--":
            position += 1
            break
        if not text.startswith("--") and "c" in text:
            has_code = True
        takes_value = text in {"--rcfile", "--init-file"} or (not text.startswith("--") and text[-1] in "oO")
        position += 2 if takes_value else 1
    if not has_code and position < len(words) and not words[position].dynamic and words[position].text != "/dev/stdin":
        return None
    if not has_code or position >= len(words):
        return Inner(certain=False)
    return _code(words[position])


def _find_commands(words: tuple[Word, ...]) -> tuple[Inner, ...]:
    found = []
    for position, word in enumerate(words):
        if word.text in _EXEC_FLAGS:
            rest = words[position + 1 :]
            end = next((i for i, w in enumerate(rest) if w.text in {";", "+"}), len(rest))
            found.append(Inner(_replaced(rest[:end], "{}"), open=True))
        elif word.dynamic and not word.quoted:
            found.append(Inner(certain=False))
    return tuple(found)


def _replaced(words: tuple[Word, ...], mark: str) -> tuple[Word, ...]:
    """Words that hold `mark` get their text only when they run."""
    return tuple(Word(w.text, w.dynamic or mark in w.text, w.glob, w.quoted) for w in words)


def _after_flag_c(words: tuple[Word, ...]) -> tuple[Inner, ...]:
    for position, word in enumerate(words[:-1]):
        if word.text in {"-c", "--command", "-qc", "-qec", "-ec", "-lc"}:
            return (_code(words[position + 1]), Inner(certain=False))
    return (Inner(certain=False),)


def _generic(name: str, words: tuple[Word, ...]) -> tuple[Inner, ...]:
    spec = _SPECS[name]
    position, assignments, certain = _past_options(spec, words)
    if name == "env" and any(w.text.startswith(("-S", "--split-string", "-vS", "-iS")) for w in words):
        text = " ".join(w.text for w in words)
        return (Inner(code=re.sub(r"^.*?(-S|--split-string)=?\s*", "", text), dynamic=True, certain=False),)
    position += spec.skip
    rest = words[position:]
    if not rest:
        return (
            () if name in {"env", "exec", "xargs", "time", "nice", "command"} and certain else (Inner(certain=False),)
        )
    certain = certain and name not in _UNCERTAIN and not any(w.dynamic for w in words[:position])
    if spec.joins:
        dynamic = any(w.dynamic or w.glob for w in rest)
        return (Inner(code=" ".join(w.text for w in rest), dynamic=dynamic, certain=certain and not dynamic),)
    if name == "xargs":
        rest = _replaced(rest, _replacement(words[:position]))
    return (Inner(rest, assignments, certain=certain, open=name in {"xargs", "parallel", "entr"}),)


def _replacement(options: tuple[Word, ...]) -> str:
    for position, word in enumerate(options):
        if word.text == "-I" and position + 1 < len(options):
            return options[position + 1].text
        if word.text.startswith("-I"):
            return word.text[2:]
    return "{}"


def _past_options(spec: _Spec, words: tuple[Word, ...]) -> tuple[int, tuple[Word, ...], bool]:
    """The position after a wrapper's own options and assignments, those assignments, and whether all were known."""
    flags, valued = spec.flags.split(), spec.valued.split()
    short_flags = {flag[1] for flag in flags if len(flag) == 2}
    short_valued = {flag[1] for flag in valued if len(flag) == 2}
    position, certain = 0, True
    assignments: list[Word] = []
    while position < len(words):
        text = words[position].text
        if text == "--":
            return position + 1, tuple(assignments), certain
        if spec.assigns and _ASSIGNMENT.match(text):
            assignments.append(words[position])
            position += 1
            continue
        if not text.startswith("-") or words[position].dynamic:
            break
        known, takes_next = _option(text, flags, valued, short_flags, short_valued)
        certain = certain and known
        position += 2 if takes_next else 1
    return position, tuple(assignments), certain


def _option(
    text: str, flags: list[str], valued: list[str], short_flags: set[str], short_valued: set[str]
) -> tuple[bool, bool]:
    """Whether the option is known, and whether its value is the next word."""
    if text in flags or text == "-":
        return True, False
    if text in valued:
        return True, True
    if text.startswith("--"):
        return text.split("=", 1)[0] in flags + valued and "=" in text, False
    if re.fullmatch(r"-[0-9]+", text):
        return True, False
    for index, letter in enumerate(text[1:], start=1):
        if letter in short_valued:
            return True, index == len(text) - 1
        if letter not in short_flags:
            return False, False
    return True, False
