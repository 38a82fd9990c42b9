"""Which environment variables a command sees: a short list of names, never the host's whole environment.

Keys and tokens in the host's environment are the host's; a command gets one only by way of a file or a tool of its
own. This module must not read the environment itself.
"""

import re
from collections.abc import Mapping
from typing import Final

ALLOWED: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "MUSE_SESSION"}
)
"""Passed on as they are; so is every name that begins with `LC_`."""

FIXED: Final = {"PAGER": "cat", "GIT_PAGER": "cat"}
"""Set for every command: a pager would wait for a person who is not there."""

_SECRET: Final = re.compile(
    r"(((^|_|API|SSH)KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(_ID)?|(^|_)PASS|(^|_)PAT)$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is withheld even when it is configured (`*_KEY`, `*_TOKEN`, `*_SECRET` …)."""
    return _SECRET.search(name) is not None


def shell_environment(environment: Mapping[str, str], extra_names: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment of a command: the allowed and configured names that are set, and the fixed values."""
    wanted = ALLOWED | set(extra_names)
    found = {
        name: value
        for name, value in environment.items()
        if (name in wanted or name.startswith("LC_")) and not is_secret_name(name)
    }
    return found | FIXED
