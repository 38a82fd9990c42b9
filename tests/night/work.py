"""What the agents of a session are given to do, so that everything can be counted outside.

Each shell step appends its own start and end to a file of its agent below `count/` in the home folder, outside of every
workspace; each edit adds one line to its agent's own file. An agent's words: a secret one, in its steps, its commands
and its files, which no other agent may ever be sent, and one in its last words, which its parent is given, as its task
is its parent's.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping

from muse.effect.model.scripted import Step
from tests.e2e.rig import Rig

Use = tuple[str, dict[str, object]]
COUNT = "count"
SLOW_SECONDS = 0.3
"""Of every second command of the first kind, so that some are under way whenever a kill comes."""
TASK = re.compile(r"Task number (\d+)")
NAMED = re.compile(r"\bc\d+[sew]\d+\b")


def secret(child: int) -> str:
    """A word that only this child may hold."""
    return f"OPAL{child}X"


def last_word(child: int) -> str:
    """A word of its result."""
    return f"JADE{child}X"


def task(child: int) -> str:
    """What the child is told; its lane in a script is found by it."""
    return f"Task number {child}: do your part."


def notes(child: int) -> str:
    """The file that is the child's own."""
    return f"notes-{child}.txt"


def files(children: int) -> dict[str, str]:
    """The workspace."""
    return {".gitignore": "made/\n"} | {notes(child): f"# notes {child}\n# end\n" for child in range(1, children + 1)}


def shell(child: int, number: int, seconds: float = 0.0, bulk: int = 0, stubborn: bool = False) -> Use:
    """A command that counts itself; `bulk` bytes of output, about."""
    name, place = f"c{child}s{number}", f"~/{COUNT}/c{child}.txt"
    nap = f"sleep {seconds}; " if seconds else ""
    more = f"; seq -s ' ' 1 {bulk // 5}" if bulk else ""
    deaf = "trap '' TERM; " if stubborn else ""
    command = (
        f'{deaf}echo "{name} start" >> {place}; {nap}echo "{name} end" >> {place}; echo {name} {secret(child)}{more}'
    )
    return ("shell", {"command": command})


def edit(child: int, number: int) -> Use:
    """One more line before the end of the child's notes."""
    line = f"c{child}e{number} {secret(child)}\n"
    return ("edit", {"path": notes(child), "old": "# end\n", "new": f"{line}# end\n"})


def write(child: int, number: int) -> Use:
    """A whole file."""
    return ("write", {"path": f"made/c{child}w{number}.txt", "content": f"c{child}w{number}\n" * 20})


def read(child: int) -> Use:
    """It only reads."""
    return ("read", {"path": notes(child)})


def keep(child: int) -> Use:
    """Puts the child's notes, as they are then, where they stay when its working tree is taken away."""
    return ("shell", {"command": f"cp {notes(child)} ~/{COUNT}/kept-{child}"})


def labour(child: int, calls: int, *, bulk: int = 0, delay_ms: int = 5) -> list[Step]:
    """So many tool calls, alone and in batches, and no last word. Every fifth has much to say."""
    made: list[Step] = []
    n = 0
    while n < calls:
        size = min(1 + len(made) % 3, calls - n)
        batch = [_one(child, at, bulk) for at in range(n, n + size)]
        made.append(Step(text=f"{secret(child)}: step {len(made)}.", uses=tuple(batch), delay_ms=delay_ms))
        n += size
    return made


def _one(child: int, at: int, bulk: int) -> Use:
    kinds = [
        shell(child, at, SLOW_SECONDS if at % 10 == 0 else 0.0),
        edit(child, at),
        shell(child, at, bulk=bulk),
        write(child, at),
        read(child),
    ]
    return kinds[at % len(kinds)]


def the_end(child: int) -> Step:
    """What the child says last."""
    return Step(text=f"{last_word(child)}: number {child} is done.")


def names(steps: tuple[Step, ...] | list[Step], tool: str) -> list[str]:
    """The names of the calls of one tool, in order."""
    found = []
    for step in steps:
        for used, args in step.uses:
            if used == tool and (match := NAMED.search(json.dumps(args))):
                found.append(match[0])
    return found


def counted(rig: Rig) -> Counter[str]:
    """Starts and ends of commands, as they counted themselves."""
    found: Counter[str] = Counter()
    for path in sorted((rig.home / COUNT).glob("*.txt")):
        found.update(path.read_text().splitlines())
    return found


def words(parents: Mapping[int, str], agents: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """Which agents may be sent which word: `agents` gives the id of each child, `parents` that of its parent."""
    found: dict[str, tuple[str, ...]] = {secret(child): (agent,) for child, agent in agents.items()}
    for child, agent in agents.items():
        found |= dict.fromkeys((task(child), last_word(child)), (agent, parents[child]))
    return found
