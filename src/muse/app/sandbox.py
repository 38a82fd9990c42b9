"""The sandbox of a session, from its settings and from what this machine has."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from muse.config import Config, muse_home, user_file
from muse.event.content import Settings

if TYPE_CHECKING:
    from muse.effect.sandbox import Machine, Sandbox


def parse_sandbox(text: str) -> str:
    """The mode that is meant, "" for the default. Raises ConfigError."""
    from muse.effect.sandbox import parse_mode

    return parse_mode(text)


def sandbox_again(held: str, configured: str, explicit: bool) -> str:
    """The mode to go on with: the one that held, or what the settings say where that is stricter, or where it was asked
    for just now, or where none held. Raises ConfigError."""
    from muse.effect.sandbox import parse_mode, strictness

    new = parse_mode(configured)
    if explicit or not held:
        return new
    return new if new and strictness(new) > strictness(held) else held


def sandbox_of(config: Config, settings: Settings, workspace: Path, log: Path) -> "Sandbox":
    """What the commands of a session run in. Raises UsageError when what was asked for cannot be had here."""
    from muse.effect.sandbox import FORCED, NO_SANDBOX, choose, enough_of_this_machine, places_of, this_machine

    if settings.sandbox == "off" and settings.network:
        return NO_SANDBOX
    places = places_of(workspace, muse_home(), log, user_file().parent, os.environ, config.sandbox_writable)
    forced = os.environ.get(FORCED, "")
    found = (this_machine if forced else enough_of_this_machine)(places.writable)
    return choose(settings.sandbox, settings.network, found, places, log.stem, forced)


def sandbox_of_tree(session: "Sandbox", workspace: Path, tree: Path) -> "Sandbox":
    """What the commands of an agent run in that works in `workspace`, in a working tree of its own."""
    from muse.effect.sandbox import tree_places
    from muse.effect.worktree import linked

    if session.places is None:
        return session
    found = linked(tree)
    entry, common = (found.entry, found.common) if found is not None else (None, None)
    return session.for_tree(tree_places(session.places, workspace, tree, muse_home(), entry, common))


def machine() -> "Machine":
    """What this machine has for a sandbox, tried."""
    from muse.effect.sandbox import this_machine

    return this_machine()


def default_sandbox(workspace: Path) -> "Sandbox":
    """What a session in this folder would run in if nothing was said about it."""
    from muse.effect.sandbox import FORCED, choose, places_of, this_machine

    places = places_of(workspace, muse_home(), muse_home() / "none.muse", user_file().parent, os.environ)
    return choose("", True, this_machine(places.writable), places, "none", os.environ.get(FORCED, ""))
