"""`muse doctor` says what sessions and all else take up."""

import json
import subprocess
from pathlib import Path

from tests.ui.driving import World, shell


def apparent(*paths: Path) -> int:
    """Bytes of files, as `du` counts them."""
    files = [str(path) for path in paths if path.exists()]
    found = subprocess.run(
        ["find", *files, "-type", "f", "-printf", "%s\n"], capture_output=True, text=True, check=True
    )
    return sum(map(int, found.stdout.split()))


def test_doctor_says_what_each_session_takes_up(world: World) -> None:
    for count in (10, 200_000):
        model = world.script({"uses": [shell(f"seq {count} | tac")]}, {"text": "ok"})
        assert world.run("exec", "--yolo", "-q", "-m", model, "go").code == 0
    world.run("doctor")  # readers leave what SQLite shares between them beside each log
    found = {one["name"]: one for one in map(json.loads, world.run("doctor", "--json").out.splitlines())}
    expected = {}
    for log in world.files():
        beside = [path for path in log.parent.iterdir() if path.name.startswith(log.stem)]
        expected[log.stem] = apparent(*beside, world.home / "run" / log.stem)
    assert found["largest"]["sizes"] == expected
    assert next(iter(found["largest"]["sizes"])) == world.files()[1].stem
    sizes = found["disk"]["sizes"]
    assert sizes["sessions"] == sum(expected.values())
    assert sizes["snapshots"] == apparent(world.home / "snapshots")
    assert sizes["total"] == sum(taken for name, taken in sizes.items() if name != "total")
    assert found["free space"]["sizes"]["reserve"] > 0
    shown = " ".join(world.run("doctor").out.split())
    assert all(log.stem[-8:] in shown for log in world.files())


def test_doctor_without_a_home_has_nothing_to_count(world: World) -> None:
    found = {one["name"]: one for one in map(json.loads, world.run("doctor", "--json").out.splitlines())}
    assert found["disk"]["sizes"]["total"] == 0
    assert "largest" not in found
