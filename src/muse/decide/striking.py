"""What a request is, once its command line is split, and whether a deny or ask rule strikes it.

A rule that forbids is read generously: /bin/rm is rm, a folder's pattern covers what is in it, a wrapper's command is a
command. What only running it could tell is "maybe", and the caller then asks.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from muse.decide.harmless import HARMLESS_FILES, TABLE
from muse.decide.patterns import Rule, fits_path, fits_tool, fits_words, may_fit_path
from muse.decide.permission import Request
from muse.decide.shelltext import names
from muse.decide.shellwords import Stage, Word, loose_stages, stages
from muse.decide.wrappers import LAUNCHERS, RUNNERS, WRAPPERS

Fit = Literal["no", "maybe", "yes"]

SHELL_TOOLS: Final = frozenset({"shell"})
_AGENT_TOOLS: Final = frozenset({"spawn", "wait", "message", "cancel", "result", "ask"})
_OWN_TOOLS: Final = frozenset({"stop"})
"""Tools that end what the agent itself has started, and nothing else."""
_FILE_WRITERS: Final = names("tee mv rm rmdir touch truncate chmod chown mkdir patch shred unlink")
_COPIERS: Final = frozenset({"cp", "install", "ln", "rsync"})
_FOLDER_CHANGERS: Final = frozenset({"cd", "pushd", "popd"})
_FOLDER_ARGS: Final = ("cwd", "workdir", "folder", "directory", "working_directory")
_GIT_VALUED: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"})


class Seen(msgspec.Struct, frozen=True):
    """A request, with its command line split. `stages` is None when that was not possible."""

    request: Request
    kind: Literal["shell", "edit", "read", "agent", "own", "other"]
    command: str = ""
    stages: tuple[Stage, ...] | None = ()
    moved: bool = False


def command_of(request: Request) -> str | None:
    """The command line of a shell call; None when it is no text, or when two of its names say different things."""
    given = [request.args[name] for name in ("command", "cmd") if name in request.args]
    if not given or not isinstance(given[0], str) or any(other != given[0] for other in given):
        return None
    return given[0]


def look(request: Request) -> Seen:
    if request.tool in SHELL_TOOLS:
        command = command_of(request)
        if command is None:
            return Seen(request, "shell", "", None)
        found = stages(command)
        elsewhere = any(request.args.get(name) not in (None, "", ".") for name in _FOLDER_ARGS)
        moved = elsewhere or any(_changes_folder(stage, request.workspace) for stage in found or ())
        return Seen(request, "shell", command, found, moved)
    if request.tool in _OWN_TOOLS:
        return Seen(request, "own")
    if request.writes or request.recovery_class == "reconcilable":
        return Seen(request, "edit" if request.tool in {"edit", "write"} or request.paths else "other")
    if request.recovery_class == "pure":
        return Seen(request, "read")
    return Seen(request, "agent" if request.tool in _AGENT_TOOLS else "other")


def _writes_arguments(stage: Stage) -> bool:
    """Whether a command writes the files it names."""
    if stage.name in {"sed", "perl"}:
        return any(re.match(r"-[A-Za-z]*i|--in-place", word.text) for word in stage.words[1:])
    return stage.name in _FILE_WRITERS or stage.name in _COPIERS


def _changes_folder(stage: Stage, workspace: str) -> bool:
    if stage.name == "cd" and len(stage.words) == 2 and stage.words[1].text in {".", workspace or "."}:
        return False
    return stage.name in _FOLDER_CHANGERS or (
        stage.name in {"env", "git", "make", "tar", "sudo"}
        and any(word.text.startswith(("-C", "-D", "--chdir", "--directory")) for word in stage.words)
    )


def strikes(rule: Rule, seen: Seen) -> Fit:
    """Whether a deny or ask rule strikes a request."""
    if seen.kind == "shell":
        return _strikes_command(rule, seen)
    request = seen.request
    if rule.tool in {"edit", "write"} and seen.kind == "edit":
        return _worst(_path_fit(rule, path) for path in request.paths or ("",))
    if rule.tool == "read" and seen.kind == "read":
        return _worst(_path_fit(rule, path) for path in request.paths or ("",))
    return "yes" if not rule.pattern and fits_tool(rule, request.tool) else "no"


def _path_fit(rule: Rule, path: str) -> Fit:
    return "yes" if fits_path(rule, path, strict=True) else "no"


def _worst(fits: Iterable[Fit]) -> Fit:
    found = set(fits)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"


def _strikes_command(rule: Rule, seen: Seen) -> Fit:
    if not rule.pattern and fits_tool(rule, seen.request.tool):
        return "yes"
    if rule.tool == "shell":
        if seen.stages is None:
            rough = _worst(_suffixes(rule, stage) for stage in loose_stages(seen.command))
            return "yes" if rough != "no" else "maybe"
        return _worst(_strikes_stage(rule, stage) for stage in seen.stages)
    if rule.tool not in {"edit", "write", "read"}:
        return "no"
    if seen.stages is None:
        return "maybe" if rule.pattern else "no"
    return _worst(_strikes_files(rule, stage, seen) for stage in seen.stages)


def _strikes_stage(rule: Rule, stage: Stage) -> Fit:
    if not stage.words:
        return "no"
    for words in _readings(stage):
        if fits_words(rule, words, strict=True):
            return "yes"
    if stage.opaque and not stage.words[0].dynamic:
        if _suffixes(rule, stage) == "yes":
            return "yes"
        return "maybe"
    uncertain = stage.open or any(word.dynamic or word.glob for word in stage.words)
    words = (*stage.words, Word("", dynamic=True)) if stage.open else stage.words
    if uncertain and fits_words(rule, words, maybe=True, strict=True):
        return "maybe"
    if stage.name.casefold() in WRAPPERS | LAUNCHERS and _suffixes(rule, stage) == "yes":
        return "maybe"
    return "no"


def _suffixes(rule: Rule, stage: Stage) -> Fit:
    """Whether the rule fits the words from any one on, as when a wrapper runs them."""
    first = 2 if stage.name in LAUNCHERS - RUNNERS else 0
    return "yes" if fits_words(rule, stage.words[first:], strict=True, anywhere=True) else "no"


def _readings(stage: Stage) -> list[tuple[Word, ...]]:
    """The words as they stand, with assignments, and without options before a subcommand (`git -C x push`)."""
    found = [stage.words]
    if stage.assignments:
        found.append((*stage.assignments, *stage.words))
    rest = stage.words[1:]
    if rest and rest[0].text.startswith(("-", "+")):
        found.append((stage.words[0], *_without_options(rest, _GIT_VALUED)))
        found.append((stage.words[0], *_without_options(rest, None)))
    return found


def _without_options(words: tuple[Word, ...], valued: frozenset[str] | None) -> tuple[Word, ...]:
    """`words` from the first that is no option; with `valued` None each option is taken to have a value."""
    position = 0
    while position < len(words) and words[position].text.startswith(("-", "+")):
        text = words[position].text
        takes_value = "=" not in text if valued is None else text in valued
        position += 2 if takes_value else 1
    return words[position:]


def _strikes_files(rule: Rule, stage: Stage, seen: Seen) -> Fit:
    """File rules against a command: its redirections, and the arguments of commands that read or write files."""
    targets = list(stage.writes) if rule.tool != "read" else list(stage.reads)
    if rule.tool == "read":
        targets += stage.words[1:]
    elif _writes_arguments(stage):
        targets += stage.words[-1:] if stage.name in _COPIERS else stage.words[1:]
    shows = rule.tool != "read" or stage.name in TABLE or not stage.words
    return _worst(_strikes_target(rule, word, seen, shows=shows) for word in targets if word.text not in HARMLESS_FILES)


def _strikes_target(rule: Rule, word: Word, seen: Seen, *, shows: bool) -> Fit:
    """`shows`: the command is one that shows or writes files, so a word known only at run time may be such a file."""
    if not rule.pattern:
        return "yes" if rule.tool != "read" else "no"
    paths = [relative_path(text, seen.request.workspace) for text in (word.text, *re.split("[=:,@]", word.text))]
    known = [path for path in paths if path is not None]
    if any(fits_path(rule, path, strict=True) for path in known):
        return "yes"
    if (word.dynamic and shows) or (seen.moved and rule.tool != "read"):
        return "maybe"
    if word.glob and (seen.moved or word.dynamic or any(may_fit_path(rule, path) for path in known)):
        return "maybe"
    last = rule.pattern.rsplit("/", 1)[-1]
    return "maybe" if seen.moved and any(path.rsplit("/", 1)[-1] == last for path in known) else "no"


def relative_path(text: str, workspace: str) -> str | None:
    """A path in a command, relative to the workspace; None when it leads or may lead outside."""
    root = workspace.rstrip("/")
    if root and text.startswith(root + "/"):
        text = text[len(root) + 1 :]
    parts = [part for part in text.split("/") if part not in {"", "."}]
    if text.startswith(("/", "~")) or ".." in parts or not parts:
        return None
    return "/".join(parts)
