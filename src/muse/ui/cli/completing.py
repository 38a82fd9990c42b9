"""What the shell offers when Tab is pressed inside an argument: sessions, requests, models, modes, event types.

Loaded with the commands, so everything that is asked for is imported inside. Whatever goes wrong is an empty offer: a
person in the middle of a line can do nothing about it.
"""

from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem

OFFERED_MAX: Final = 50
MODES: Final = ("default", "accept-edits", "plan", "yolo")


def sessions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The sessions of this folder, then all others, newest first, those with a name by that as well; or a file."""
    from muse.errors import MuseError
    from muse.ui.cli.finding import here, sessions_of, short_id
    from muse.view.visible import headline

    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    offered = [CompletionItem("last", help="the newest of this folder")]
    with suppress(MuseError, OSError):
        near, far = sessions_of(here())
        for entry in [*near, *far][:OFFERED_MAX]:
            offered.append(CompletionItem(short_id(entry.session), help=headline(entry.name or entry.prompt, 60)))
            if incomplete and entry.name.isprintable():
                offered.append(CompletionItem(entry.name, help=short_id(entry.session)))
    return [item for item in offered if item.value.startswith(incomplete)]


def lanes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """As `sessions`; after a colon the agents of that session that can still be spoken to."""
    return _lanes(ctx, param, incomplete, cancelled=False)


def agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """As `sessions`; after a colon all agents of that session."""
    return _lanes(ctx, param, incomplete, cancelled=True)


def _lanes(ctx: click.Context, param: click.Parameter, incomplete: str, *, cancelled: bool) -> list[CompletionItem]:
    from contextlib import closing

    from muse import app
    from muse.errors import MuseError
    from muse.ui.cli.finding import find_session
    from muse.view.visible import headline

    session, colon, lane = incomplete.partition(":")
    if not colon:
        return sessions(ctx, param, incomplete)
    with suppress(MuseError, OSError), closing(app.open_log(find_session(session, running=True), check=False)) as log:
        all_of_it = (one for one in app.state_of(log).agents.values() if one.id.startswith(lane))
        found = [one for one in all_of_it if cancelled or not one.cancelled][:OFFERED_MAX]
        return [CompletionItem(f"{session}:{one.id}", help=headline(one.name or one.task, 60)) for one in found]
    return []


def requests(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The requests for approval that wait for an answer."""
    return _waiting(incomplete, questions=False)


def questions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The questions that wait for an answer."""
    return _waiting(incomplete, questions=True)


def _waiting(incomplete: str, *, questions: bool) -> list[CompletionItem]:
    from muse.errors import MuseError
    from muse.ui.cli.inbox import waiting
    from muse.view.visible import headline

    with suppress(MuseError, OSError):
        return [
            CompletionItem(one.address, help=headline(one.shown, 60))
            for one in waiting()
            if one.address.startswith(incomplete) and (one.question is not None) == questions
        ]
    return []


def models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The providers, each with the slash after which a model's name follows; and the model of the settings."""
    from pathlib import Path

    from muse import config
    from muse.errors import MuseError

    names = [f"{name}/" for name in config.BUILT_IN]
    with suppress(MuseError, OSError):
        loaded = config.load(Path.cwd())
        names = [*([loaded.model] if loaded.model else []), *names, *(f"{name}/" for name in loaded.providers)]
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def roles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The roles that hold in this folder."""
    from pathlib import Path

    from muse import app
    from muse.errors import MuseError
    from muse.view.visible import headline

    with suppress(MuseError, OSError):
        found = [one for one in app.find_roles(Path.cwd()).roles if one.name.startswith(incomplete)]
        return [CompletionItem(one.name, help=headline(one.description, 60)) for one in found]
    return []


def sandboxes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The modes of the sandbox."""
    return [CompletionItem(mode) for mode in ("read-only", "workspace-write", "off") if mode.startswith(incomplete)]


def modes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The permission modes."""
    return [CompletionItem(mode) for mode in MODES if mode.startswith(incomplete)]


def event_types(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The types of events."""
    from muse.event.kinds import KINDS

    return [CompletionItem(name) for name in sorted(KINDS) if name.startswith(incomplete)]


def kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What events are about."""
    from typing import get_args

    from muse.view.timeline import Kind

    return [CompletionItem(name) for name in get_args(Kind) if name.startswith(incomplete)]


def settings_keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The keys that `-c` takes, each with its `=`."""
    from muse.config import Config

    return [CompletionItem(f"{key}=") for key in Config.__struct_fields__ if key.startswith(incomplete)]
