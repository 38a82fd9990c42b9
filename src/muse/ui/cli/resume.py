"""`muse resume`: go on where a session stopped."""

from pathlib import Path

import click
import msgspec

from muse import app
from muse.errors import Busy, UsageError
from muse.ui.cli import completing, hosting
from muse.ui.cli.address import Place, resolve
from muse.ui.cli.drive import Job, busy, drive, short, taken_over
from muse.ui.cli.finding import here, is_here, project_folders, tilde
from muse.ui.cli.live import Live
from muse.ui.cli.options import Flags, driving, flags_of, folder_of, in_background, prompt_of, taking
from muse.ui.cli.person import person
from muse.ui.cli.recovery import Recovery, finished_calls
from muse.view.summary import outcome_words
from muse.view.visible import headline


@click.command("resume")
@click.argument("session", default="last", shell_complete=completing.sessions)
@click.argument("prompt", default="")
@click.option("--after", type=click.IntRange(min=0), default=None, metavar="SEQ",
              help="Show from the event after SEQ on, so that a reader of --json goes on without a gap.")  # fmt: skip
@click.option("--recovered", is_flag=True,
              help="Go on with a session that lost its end: saved from a damaged one, or copied in part.")  # fmt: skip
@in_background
@taking
@driving
def command(
    session: str, prompt: str, after: int | None, recovered: bool, background: bool, take_over: bool, force: bool,
    **given: object,
) -> int:  # fmt: skip
    """Go on with SESSION (an id, part of one, a name, a file; default: `last`, the newest of this folder), with a new
    PROMPT if given.

    Model, permission mode, rules and limits are those of the log, unless flags say otherwise.

    \b
      muse resume
      muse resume 4f2k "now the docs" --budget cost=2
    """
    flags = flags_of(given)
    path = _find(session, prompt, folder_of(flags.folder) if flags.folder else None)
    text = prompt_of(prompt) if prompt else ""
    if background:
        return hosting.begin([str(path), *(["-"] if text else [])], text, as_json=flags.as_json, quiet=flags.quiet)
    live = Live(as_json=flags.as_json, quiet=flags.quiet)
    taken = taken_over(path, live, take_over=take_over, force=force)
    log = app.open_log(path, read_only=False)
    if app.has_cut_append(log):
        live.say("note: the log ended in an append that was not whole; it goes on after the last one that is")
    state = app.state_to_go_on(log)
    app.require_continuable(log, state, recovered=recovered)
    if after is not None and after > state.seq:
        raise UsageError(f"there is no event {after}: the log has {state.seq}", hint="give the last seq that you have")
    if not text and not left_to_do(state):
        if after is None and not flags.as_json and state.prompts and person() is not None:
            from muse.ui.cli.chat import talk_again

            log.close()
            return talk_again(path, flags, taken=taken)
        if taken is None and (state.closed or not state.prompts):
            return _nothing(log, state, live, after)
    job = msgspec.structs.replace(job_of(log, state, flags, live, after), taken=taken)
    try:
        return drive(job, text, as_json=flags.as_json)
    except Busy as error:
        raise busy(log.session, app.owner_pid(path)) from error


def _find(session: str, prompt: str, folder: Path | None) -> Path:
    try:
        place = resolve(session, folder)
    except UsageError as error:
        if prompt or session in ("", "last"):
            raise
        shown = headline(session, 60)
        raise UsageError(
            f"{shown!r} is no session ({error})", hint=f'to give a prompt: muse resume last "{shown}"'
        ) from error
    return whole(place)


def whole(place: Place) -> Path:
    """The file of a session that is to go on. Raises UsageError for the address of one of its agents, or an event."""
    lane, name = place.address.agent, short(place.path.stem)
    if lane in ("", "main") and not place.address.seq:
        return place.path
    to = f"{name}:{lane}" if lane else name
    hint = f'muse resume {name}; words to one agent: muse steer {to} "…"'
    raise UsageError("a session goes on as a whole", hint=hint)


def left_to_do(state: app.Session) -> bool:
    """Whether an agent is in a turn, or a person's words wait."""
    return bool(state.active or state.early or state.wants or (state.prompts and "main" not in state.agents))


def _nothing(log: app.Log, state: app.Session, live: Live, after: int | None) -> int:
    if after is not None:
        for event in app.events(log, after):
            live.event(event)
    name = short(log.session)
    if not state.prompts:
        words, then = "nothing was asked of it yet", "begin"
    else:
        outcome = state.outcome or state.agents["main"].outcome or "done"
        words, then = f"nothing is left to do ({outcome_words(outcome)})", "give it more"
    live.say(f'session {log.session}: {words}. To {then}: muse resume {name} "…"')
    log.close()
    return 0


def job_of(log: app.Log, state: app.Session, flags: Flags, live: Live, after: int | None) -> Job:
    """What it takes to go on with a session: settings, model and rules of its log, unless flags say otherwise."""
    workspace = folder_of(flags.folder) if flags.folder else _workspace(log, state)
    if state.settings is None:
        raise UsageError(f"session {log.session} was never opened", hint='start a new one: muse exec "…"')
    if not workspace.is_dir():
        raise UsageError(
            f"the folder of this session is gone: {workspace}",
            hint=f"put it back, or go on in another one: muse resume {short(log.session)} -C DIR (the log is whole)",
        )
    terminal = person()
    loaded = flags.settings(workspace, terminal is not None)
    settings = app.settings_again(state, loaded, flags.model, flags.mode)
    settings = app.limited(loaded.config, settings, flags.budget, flags.fallback_model, state)
    settings = app.with_rules(settings, flags.allow, flags.deny)
    app.model_of(loaded.config, settings)  # a missing key is said before anything is claimed
    recovery = Recovery(state, set() if state.clean else finished_calls(log))
    for seq in _open_calls(state):
        if (event := app.event_at(log, seq)) is not None:
            live.learn(event)
    elsewhere = not flags.folder and not is_here(str(workspace))
    greeting = f"in {tilde(str(workspace))}, mode {settings.mode}" if elsewhere else ""
    return Job(
        log=log, loaded=loaded, settings=settings, workspace=workspace, live=live, terminal=terminal,
        show_after=after, recovery=recovery, greeting=greeting,
    )  # fmt: skip


def _workspace(log: app.Log, state: app.Session) -> Path:
    """The folder of the session: where it was, or the one at hand when it was renamed to that."""
    workspace = Path(state.workspace)
    if workspace.is_dir():
        return workspace
    entries = app.catalog().entries([app.path_of(log)])
    now = app.renamed(entries, project_folders(here())).get(state.workspace)
    return Path(now) if now else workspace


def _open_calls(state: app.Session) -> list[int]:
    """The events that say what each open call is: its intent, or the request for its approval."""
    runs = [run.intent or run.request for agent in state.agents.values() for run in agent.batch]
    asked = [agent.call.intent for agent in state.agents.values() if agent.call is not None]
    return sorted({seq for seq in (*runs, *asked) if seq})
