"""`muse spawn`: a person gives a task to an agent of its own, beside what a session does."""

from typing import Final, Literal

import click

from muse import app
from muse.errors import UsageError
from muse.event.envelope import Event
from muse.event.kinds import AgentSpawned, AgentWanted, CommandRefused
from muse.ui.cli import completing
from muse.ui.cli.options import words
from muse.ui.cli.speaking import CLIENT, Listener, acknowledge, apart, listener, text_of, told
from muse.view.visible import headline, one_line

ANSWER_SECONDS: Final = 3.0
"""How long a running session is given to say what became of it."""
ANSWER_LOOKS_MAX: Final = 20
"""How often meanwhile it is looked whether it runs still."""
TASK_CHARACTERS_MAX: Final = 100_000


@click.command("spawn")
@click.argument("address_and_task", nargs=-1, required=True, metavar="[ADDRESS] TASK", shell_complete=completing.lanes)
@click.option("--name", default="", metavar="TEXT", help="A short name, for you.")
@click.option("--role", default="", metavar="NAME", help="A role of .muse/agents.", shell_complete=completing.roles)
@click.option("-m", "--model", default="", metavar="PROVIDER/MODEL", help="The model to use (default: its parent's).",
              shell_complete=completing.models)  # fmt: skip
@click.option("--tools", default=None, metavar="NAMES",
              help="Tools of the session, with commas between (default: the role's, or its parent's).")  # fmt: skip
@click.option("--mode", default="", metavar="MODE", shell_complete=completing.modes,
              help="default, accept-edits, plan or yolo; at most what its parent may.")  # fmt: skip
@click.option("--isolation", default=None, type=click.Choice(["shared", "worktree"]), metavar="shared|worktree",
              help="Its parent's files, or a working tree of its own (default: that, where it may write).")  # fmt: skip
@told
def command(
    address_and_task: tuple[str, ...], name: str, role: str, model: str, tools: str | None, mode: str,
    isolation: str | None, client_id: str, as_json: bool,
) -> int:  # fmt: skip
    """Give TASK to a new agent below the one at ADDRESS (SESSION[:AGENT]; default: main of the session that runs in
    this folder, or of the last one). It works in the background; its result reaches that agent at its next model
    request. "-" reads TASK from standard input. The address of the new agent is printed. Where nobody runs the session,
    it begins at muse resume; until then muse cancel SESSION@SEQ takes it back.

    \b
      muse spawn "write tests for the parser"
      muse spawn 4f2k:main.2 "find the cause" --role scout --mode plan
    """
    address, text = apart(address_and_task, "spawn")
    task = text_of(text, 'muse spawn ADDRESS "…"')
    if len(task) > TASK_CHARACTERS_MAX:
        raise UsageError(
            f"a task has at most {TASK_CHARACTERS_MAX:,} characters",
            hint="put it in a file of the workspace and name the file",
        )
    with listener(address, f"spawn {task}") as to:
        body = AgentWanted(
            task=task, name=words(name), role=words(role), model=words(model), tools=_names(tools), mode=words(mode),
            isolation=_isolation(isolation), origin=app.origin(CLIENT),
        )  # fmt: skip
        if not to.said_before(client_id):
            _require_possible(to, body)
        seq = app.submit(to.log, body, to.lane, client_id=client_id)
        return _answer(to, seq, as_json=as_json)


def _names(tools: str | None) -> tuple[str, ...] | None:
    if tools is None:
        return None
    return tuple(dict.fromkeys(name.strip() for name in words(tools).split(",") if name.strip()))


def _isolation(given: str | None) -> Literal["", "shared", "worktree"]:
    return "worktree" if given == "worktree" else "shared" if given == "shared" else ""


def _require_possible(to: Listener, body: AgentWanted) -> None:
    """Raises UsageError for an agent that could not be, as far as the session's state tells."""
    parent, state = to.agent(), to.state
    if why := app.spawn_refusal(state, to.lane, body, runs=bool(to.pid)):
        raise UsageError(one_line(why.rstrip(".")), hint=_hint(to, parent))
    if body.isolation == "worktree" and state.settings is not None and state.git is None:
        raise UsageError(
            f"{one_line(state.workspace)} is in no git repository, and a working tree is made of one",
            hint="leave --isolation out, or give --isolation shared",
        )


def _hint(to: Listener, parent: app.Agent | None) -> str:
    settings = to.state.settings
    if parent is not None and parent.finished and not parent.cancelled:
        return f'give it more: muse steer {to.of(parent.id)} "…"; or spawn below {parent.parent}'
    if parent is not None and parent.cancelled:
        return f'spawn it below its parent: muse spawn {to.of(parent.parent)} "…"'
    if parent is not None and settings is not None and parent.depth >= settings.agents_depth_max:
        return f'spawn it further up: muse spawn {to.of(parent.parent)} "…"'
    if settings is not None and len(to.state.agents) > settings.agents_total_max:
        return f"agents.total in the settings says how many, from the next muse resume {to.name} on"
    return "muse spawn --help says what can be given"


def _answer(to: Listener, seq: int, *, as_json: bool) -> int:
    """Say what became of it. Exit code 1 when it could not be after all, because of what happened meanwhile."""
    parent = to.state.agents.get(to.lane)
    paused = parent is not None and parent.paused
    found = app.came_of(to.log, seq, 0.0)
    for _ in range(ANSWER_LOOKS_MAX if not paused else 0):
        if found is not None or not to.pid:
            break
        found = app.came_of(to.log, seq, ANSWER_SECONDS / ANSWER_LOOKS_MAX)
        to.pid = app.owner_pid(to.path)
    if found is not None and isinstance(found.body, CommandRefused):
        why = headline(found.body.text, 300) or "this process may not want it"
        acknowledge(to, seq, f"refused (#{found.seq}): {why}", as_json=as_json, agent="", refused=found.body.text)
        return 1
    child, said = _child(to, seq, found, paused=paused)
    answer = to.of(child) if child else f"{to.name}@{seq}"
    acknowledge(to, seq, said, as_json=as_json, answer=answer, agent=child, refused="")
    return 0


def _child(to: Listener, seq: int, found: Event | None, *, paused: bool) -> tuple[str, str]:
    """The id of the child, "" where it cannot be known yet, and what is said of it."""
    back = f"take it back: muse cancel {to.name}@{seq}"
    if found is not None and isinstance(found.body, AgentSpawned):
        tree = ", in a working tree of its own" if found.body.isolation == "worktree" else ""
        whom = f"{found.agent} of {to.name}"
        return found.agent, f"spawned below {to.lane}: {whom}{tree}; follow it: muse attach {to.of(found.agent)}"
    if paused:
        return "", f"wanted below {to.lane} of {to.name}, which is paused: muse continue {to.of(to.lane)}; {back}"
    if to.pid:
        return "", f"wanted below {to.lane} of {to.name}; muse agents {to.name} shows it when it begins; {back}"
    now = app.state_of(to.log)
    wants = [want.seq for want in now.wants.get(to.lane, ())]
    parent = now.agents.get(to.lane)
    if seq not in wants:
        return "", f"it was taken back, or {to.lane} of {to.name} was cancelled"
    child = f"{to.lane}.{(len(parent.children) if parent is not None else 0) + 1 + wants.index(seq)}"
    return child, f"wanted below {to.lane} of {to.name}: it will be {child}; {back}"
