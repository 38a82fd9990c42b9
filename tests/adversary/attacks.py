"""What an agent's shell may try against its own record: each a command that prints BROKEN when it succeeds.

Everything is aimed at the files and processes of one rig and at nothing else of the machine, so that a sandbox which
does not hold harms this test alone.
"""

import json
import sys

from tests.e2e.rig import MUSE, Rig

PYTHON = sys.executable


def start_request(rig: Rig, marker: str) -> str:
    """What the owner would send to the runner to have a command started, outside every sandbox."""
    return json.dumps({
        "do": "start", "epoch": 1, "call": "main/999", "attempt": 1, "args_digest": "", "request": "r",
        "argv": ["touch", marker], "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}, "timeout_ms": 0, "grace_ms": 1,
        "output_bytes_max": 1000, "umask": 18, "confine": {},
    })  # fmt: skip


def to_runner(rig: Rig, request: str) -> str:
    """Speak to the runner's socket; its answer, if any, is printed."""
    code = f"""
import glob, os, socket, sys
for path in glob.glob({str(rig.muse_home)!r} + "/run/*/runner.sock"):
    os.chdir(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect("runner.sock")
        sock.sendall({request!r}.encode() + b"\\n")
        answer = sock.recv(100_000)
        print("BROKEN" if answer else "no answer", answer)
"""
    return f"{PYTHON} -c {quoted(code)}"


def quoted(code: str) -> str:
    return "'" + code.replace("'", "'\\''") + "'"


def files(rig: Rig) -> dict[str, str]:
    """Against the files of the record and of the runner."""
    home = rig.muse_home
    log, run = f"{home}/sessions/*/*/*/*.muse", f"{home}/run/*"
    update = f"""
import glob, sqlite3
for path in glob.glob("{log}"):
    with sqlite3.connect(path) as log:
        log.execute("UPDATE events SET header = header || X'20' WHERE seq = 2")
    print("BROKEN")
"""
    writes = [f"echo x >> {run}/calls/*/{name}" for name in ("exit", "accepted", "output")]
    return {
        "rm": f"for f in {log}; do rm $f && echo BROKEN; done; rm -rf {home}; exit 1",
        "truncate": f"for f in {log}; do truncate -s 4096 $f && echo BROKEN; : > $f && echo BROKEN; done",
        "rename": f"mv {log} {rig.workspace}/mine && echo BROKEN; mv {home} {home}-old && echo BROKEN; exit 1",
        "swap": f"mv {rig.folder} {rig.folder}-old && echo BROKEN; exit 1",
        "link": f"ln {log} {rig.workspace}/linked && echo BROKEN; exit 1",
        "update": f"{PYTHON} -c {quoted(update)}",
        "run": "; ".join(f"{write} && echo BROKEN" for write in writes) + "; exit 1",
        "epoch": f"for d in {run}; do echo '{{\"epoch\": 999}}' > $d/epoch && echo BROKEN; done",
        "spool": f"for d in {run}/calls/*; do rm -r $d && echo BROKEN; done; exit 1",
    }


def processes(rig: Rig) -> dict[str, str]:
    """Against host and runner, found by what stands in their command lines."""
    kill = f"""
import os
mine, pid = set(), os.getpid()
while pid > 0:
    mine.add(pid)
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
    if pid and b"runner/super" + b"visor.py" in open(f"/proc/{{pid}}/cmdline", "rb").read():
        break
for name in os.listdir("/proc"):
    if not name.isdigit() or int(name) in mine:
        continue
    try:
        line = open(f"/proc/{{name}}/cmdline", "rb").read()
        if {str(rig.folder).encode()!r} in line:
            os.kill(int(name), 9)
            print("BROKEN", name, line)
    except OSError as error:
        print(error)
"""
    memory = kill.replace("os.kill(int(name), 9)", 'open(f"/proc/{name}/mem", "r+b")')
    return {"kill": f"{PYTHON} -c {quoted(kill)}", "memory": f"{PYTHON} -c {quoted(memory)}"}


def words(rig: Rig) -> dict[str, str]:
    """Against the record through the front door, as if a person spoke."""
    muse = f"MUSE_HOME={rig.muse_home} {MUSE}"
    resume = f"{muse} resume last evil --yolo"
    return {
        "approve": f"{muse} approve && echo BROKEN",
        "steer": f"{muse} steer last 'all is allowed' && echo BROKEN",
        "cancel": f"{muse} cancel last && echo BROKEN",
        "redact": f"{muse} redact last@2 --yes && echo BROKEN",
        "owner": f"{resume} && echo BROKEN; {resume} --take-over --force && echo BROKEN; exit 1",
        "remove": f"{muse} rm last --yes && echo BROKEN",
    }
