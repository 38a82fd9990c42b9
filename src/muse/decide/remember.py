"""What a person's "always" adds: the narrowest rule that is still useful, or none when none is safe."""

import re
from typing import Final

from muse.decide.harmless import TABLE
from muse.decide.patterns import parse_rule, quoted_path
from muse.decide.permission import Request
from muse.decide.shelltext import names
from muse.decide.shellwords import Stage, quoted, stages
from muse.decide.striking import command_of
from muse.decide.wrappers import LAUNCHERS, WRAPPERS
from muse.errors import ConfigError

REMEMBERED_CHARS_MAX: Final = 400

# with these, the word after the name says what is done, so it belongs to the prefix
_SUBCOMMANDS: Final = names("git npm pnpm yarn bun cargo go uv poetry pdm hatch make just docker gh kubectl")
_RUNNERS: Final = frozenset({"run", "exec", "tool", "x"})
# what these do depends on their arguments too much for a prefix
_EXACT_ONLY: Final = names(
    "rm mv cp dd ln chmod chown chgrp kill pkill killall curl wget scp rsync sftp nc ncat socat telnet tee truncate "
    "shred mkfs mount umount passwd useradd usermod crontab systemctl service launchctl iptables sysctl reboot "
    "shutdown "
    "export unset alias hash enable bind mapfile readarray read printenv install patch mysql psql sqlite3 redis-cli "
    "ansible terraform aws gcloud az ruby perl node php lua deno tsx ts-node java Rscript julia swift osascript "
    "awk gawk mawk sed jq ed ex vi vim emacs nano less more man tar zip unzip gpg openssl dpkg apt apt-get yum "
    "dnf brew"
)
_EXACT_SUB: Final = {
    "git": names("push reset clean checkout restore rebase filter-branch config remote rm update-ref worktree"),
    "docker": names("run exec rm rmi cp system volume"),
    "kubectl": names("exec delete apply run"),
    "npm": names("publish exec"),
    "bun": names("x"),
    "cargo": names("publish"),
    "uv": names("publish"),
    "gh": names("api"),
}
_TEST_TOOLS: Final = names("pytest ruff mypy")
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./:@+-]+")
_TOOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def remember_pattern(request: Request) -> str:
    """The text of the allow rule to offer for `request`, "" when there is none."""
    if request.tool == "shell":
        command = command_of(request)
        pattern = _shell_pattern(command) if command is not None else ""
    elif request.outside or "" in request.paths:
        pattern = ""
    elif request.tool in {"edit", "write", "apply"}:
        pattern = _file_pattern("edit", request.paths)
    elif request.recovery_class == "pure":
        pattern = _file_pattern("read", request.paths)
    else:
        pattern = request.tool if _TOOL.fullmatch(request.tool) else ""
    if not pattern or len(pattern) > REMEMBERED_CHARS_MAX:
        return ""
    try:
        return parse_rule(pattern).text
    except ConfigError:
        return ""


def _file_pattern(tool: str, paths: tuple[str, ...]) -> str:
    if not paths or any(re.search(r"[\x00-\x1f\x7f\ud800-\udfff]|^\s|\s$", path) for path in paths):
        return ""
    if len(set(paths)) == 1:
        return f"{tool}({_dotted(paths[0])})"
    folders = {path.rpartition("/")[0] for path in paths}
    if len(folders) == 1 and "" not in folders and tool == "edit":
        return f"{tool}({_dotted(folders.pop())}/*)"
    return ""


def _dotted(path: str) -> str:
    """The path as a pattern; one that begins like a home or a drive is marked as relative."""
    return ("./" if path.startswith("~") or path[1:2] == ":" else "") + quoted_path(path)


def _shell_pattern(command: str) -> str:
    found = stages(command)
    if not found or any(stage.parent != 0 for stage in found[1:]):
        return ""
    stage = found[0]
    words = (*stage.assignments, *stage.words)
    if not stage.words or stage.odd or stage.opaque or stage.fed or stage.writes or stage.reads:
        return ""
    if (
        any(one.open or one.opaque for one in found)
        or any(word.dynamic or word.glob for word in words)
        or not command.isprintable()
    ):
        return ""
    prefix = () if len(found) > 1 or stage.assignments else _prefix(stage)
    if prefix:
        return f"shell({' '.join(prefix)} *)"
    return f"shell({' '.join(quoted(word.text) for word in words)})"


def _prefix(stage: Stage) -> tuple[str, ...]:
    """The words that say what a command does; () when only the whole command does."""
    texts = tuple(word.text for word in stage.words)
    name = stage.name
    if not _PLAIN_WORD.fullmatch(texts[0]) or name in WRAPPERS or (name in TABLE and name != "git"):
        return ()
    if name in {"python", "python3"}:
        if len(texts) > 2 and texts[1] == "-m" and texts[2] in _TEST_TOOLS:
            return texts[:3]
        return ()
    if name in _SUBCOMMANDS:
        return _subcommand(texts)
    if name in _EXACT_ONLY or name in LAUNCHERS:
        return ()
    return texts[:1]


def _subcommand(texts: tuple[str, ...]) -> tuple[str, ...]:
    if len(texts) < 2 or texts[1].startswith("-") or texts[1] in _EXACT_SUB.get(texts[0], ()):
        return ()
    count = 3 if texts[1] in _RUNNERS else 2
    if len(texts) < count or not all(_PLAIN_WORD.fullmatch(text) for text in texts[:count]):
        return ()
    last = texts[count - 1]
    if last.startswith("-") or (
        count == 3 and last not in _TEST_TOOLS and texts[0] in {"uv", "poetry", "pdm", "hatch"}
    ):
        return ()
    return texts[:count]
