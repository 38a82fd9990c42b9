"""Many children of one agent: what one more costs in time and memory, and what rules and fold cost an event.

The installed command runs a session with a scripted model: `main` spawns so many children at once, eight of which work
side by side while the rest is queued; each reads three files and says its end. Then the log is folded again, and the
rules are asked after each event, as the owner does.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Section, Sizes, Table, verdict
from muse import app
from muse.app.models import rules
from muse.decide.due import due
from muse.event.envelope import Event
from muse.fold.evolve import evolve
from muse.fold.state import Session

MUSE = Path(sys.executable).with_name("muse")
A_CALL_MAX = 50
"""Children that one call spawns."""
ALLOWED = 1.3
"""How much more a child may take among 200 than among 25."""
MEMORY_MIB_MAX = 400
HEADINGS = (
    "children", "events", "a child", "against the fewest", f"aim {ALLOWED:g}", "processor time a child",
    "host's largest memory", f"aim {MEMORY_MIB_MAX} MiB", "fold an event", "rules an event",
)  # fmt: skip
LOOK_SECONDS = 0.01
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


class Ran(msgspec.Struct, frozen=True):
    """One session: milliseconds a child from the first spawning to the last end, processor time a child, the host's
    largest memory, and its log."""

    children: int
    wall_ms: float
    cpu_ms: float
    memory_mib: float
    events: int
    log: Path


def script(children: int) -> dict[str, Any]:
    """What the model says."""
    tasks = [{"task": f"Part {n}", "isolation": "shared"} for n in range(children)]
    uses = [["spawn", {"agents": tasks[at : at + A_CALL_MAX]}] for at in range(0, children, A_CALL_MAX)]
    read = {"text": "I look.", "uses": [["read", {"path": "README.md"}]]}
    return {
        "steps": [{"uses": uses}, {"text": "All parts are done."}],
        "lanes": [{"when": "Part ", "steps": [read, read, read, {"text": "This part is done."}]}],
    }


def run(folder: Path, children: int) -> Ran:
    """Run such a session. Raises RuntimeError when it does not come to its end."""
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f"children-{children}-"))
    (place / "work").mkdir()
    (place / "work" / "README.md").write_text("".join(f"line {n} of what is to be read\n" for n in range(40)))
    (place / "script.json").write_text(json.dumps(script(children)))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "MUSE_HOME": str(place / "muse"),
        "LC_ALL": "C.UTF-8",
    }
    arguments = [str(MUSE), "exec", "--yolo", "-q", "-m", f"scripted/{place / 'script.json'}", "All of it."]
    with (place / "out").open("wb") as out:
        process = subprocess.Popen(
            arguments, cwd=place / "work", env=environment | {"MUSE_SANDBOX": "off"}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out,
        )  # fmt: skip
        memory_mib, status, used = _watched(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"it ended with {process.returncode}: {(place / 'out').read_text()[-1000:]}")
    (log,) = (place / "muse").glob("sessions/*/*/*/*.muse")
    events = read(log)
    begun = min(_seconds(event) for event in events if event.type == "agent.spawned" and event.agent != "main")
    ended = max(_seconds(event) for event in events if event.type == "agent.finished")
    return Ran(
        children=children, wall_ms=(ended - begun) / children * 1e3,
        cpu_ms=(used.ru_utime + used.ru_stime) / children * 1e3, memory_mib=memory_mib,
        events=len(events), log=log,
    )  # fmt: skip


def _watched(pid: int) -> tuple[float, int, resource.struct_rusage]:
    """The largest memory that a process is seen to have, its status when it has ended, and what it used. (The largest
    that the system keeps of it begins with that of the process that started it.)"""
    peak = 0
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return (peak or used.ru_maxrss) / 1024, status, used
        with suppress(OSError):
            found = PEAK.search(Path(f"/proc/{pid}/status").read_text())
            peak = int(found[1]) if found else peak
        time.sleep(LOOK_SECONDS)


def read(log: Path) -> list[Event]:
    """All events of a log."""
    with app.read_session(log) as reading:
        return list(reading.events())


def _seconds(event: Event) -> float:
    return datetime.fromisoformat(event.time).timestamp()


def folding(events: list[Event]) -> tuple[float, float]:
    """Microseconds that an event costs the fold, and the rules that are asked of whom it woke."""
    known, state = rules(), Session(session="s")
    in_fold = in_rules = 0.0
    for event in events:
        begun = time.perf_counter()
        woken = evolve(state, event)
        folded = time.perf_counter()
        due(state, woken, known)
        in_fold += folded - begun
        in_rules += time.perf_counter() - folded
    return in_fold / len(events) * 1e6, in_rules / len(events) * 1e6


def section(folder: Path, sizes: Sizes) -> Section:
    """Sessions of each size in alternating rounds; of each figure the least."""
    ran: dict[int, list[Ran]] = {children: [] for children in sizes.children}
    costs: dict[int, list[tuple[float, float]]] = {children: [] for children in sizes.children}
    for _ in range(sizes.rounds):
        for children in sizes.children:
            one = run(folder, children)
            ran[children].append(one)
            costs[children].append(folding(read(one.log)))
    few = min(one.wall_ms for one in ran[sizes.children[0]])
    rows = []
    for children, all_of_it in ran.items():
        wall, memory = min(one.wall_ms for one in all_of_it), max(one.memory_mib for one in all_of_it)
        rows.append(
            (
                str(children), f"{all_of_it[0].events:,}", f"{wall:.1f} ms", f"{wall / few:.2f}",
                verdict(met=wall / few <= ALLOWED), f"{min(one.cpu_ms for one in all_of_it):.1f} ms",
                f"{memory:.0f} MiB", verdict(met=memory < MEMORY_MIB_MAX),
                *(f"{min(figures):.1f} µs" for figures in zip(*costs[children], strict=True)),
            )
        )  # fmt: skip
    return Section(
        title="Many children",
        before=(
            "One agent spawns so many children at once; eight work side by side, the rest is queued. Each is asked "
            "four times and reads three files. *A child* is the time from the first spawning to the last end, over "
            f"their number: aimed at is at most {ALLOWED:g} times that of the fewest, and less than {MEMORY_MIB_MAX} "
            "MiB of memory (VmHWM of the host). Times are the shortest of the rounds, memory is the largest. Processor "
            "time is that of the whole command, its start included. *Fold* and *rules* are taken from the log "
            "afterwards: each event is folded, "
            "and what is due of the agents that it woke is computed, requests built.",
        ),
        parts=(Table(headings=HEADINGS, rows=tuple(rows)),),
    )
