"""A command that prints the disk full: it is ended, the model and the user are told, and the session goes on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muse.effect.model.scripted import Step
from tests.e2e.rig import Rig
from tests.e2e.test_wire import SERVERS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")


@pytest.fixture
def small(rig: Rig) -> Iterator[Path]:
    """A disk of one MiB where the runner keeps its files; the log is elsewhere."""
    place = rig.muse_home / "run"
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    rig.kill_all()
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_command_that_prints_the_disk_full_is_ended_told_of_and_kept_as_far_as_it_came(
    rig: Rig, small: Path, dialect: str
) -> None:
    steps = [
        Step(uses=(("shell", {"command": "trap '' TERM PIPE; yes 0123456789abcde"}),)),
        Step(uses=(("shell", {"command": "echo room again"}),)),
        Step(text="Done."),
    ]
    with SERVERS[dialect](steps) as server:
        rig.provider(dialect, server.base_url)
        done = rig.muse("exec", "--yolo", "print")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        told = server.requests[1].body.decode()
    assert server.violations == []
    why = "ended because its output could not be stored: No space left on device"
    assert why in told
    first, second = rig.of_type("tool.finished")
    assert first["body"]["status"] == "error"
    assert why in first["body"]["text"]
    assert why in rig.muse("show", f"last@{first['seq']}").stdout
    exact = rig.folder / "exact"
    assert rig.muse("show", f"last@{first['seq']}", "-o", str(exact)).returncode == 0
    data = exact.read_bytes()
    assert 500_000 < len(data) == first["body"]["output_bytes"]
    assert data == (b"0123456789abcde\n" * (len(data) // 16 + 1))[: len(data)]
    assert second["body"]["text"] == "room again\nexit code 0"
    assert not any(path.is_dir() for path in small.glob("*/calls/*"))
    rig.verify()


def test_an_output_with_a_secret_is_kept_masked_though_the_disk_of_its_spool_is_full(rig: Rig, small: Path) -> None:
    """The copy without the secret does not fit beside the spool: it is made elsewhere."""
    secret = "canary-0123456789-0123456789"
    command = "trap '' TERM PIPE; echo $CANARY_NAME; yes 0123456789abcde"
    model = rig.script([{"uses": [["shell", {"command": command}]]}, {"text": "Done."}])
    rig.settings('shell_environment = ["CANARY_NAME"]\n')
    done = rig.muse("exec", "--yolo", "-m", model, "go", extra={"CANARY_TOKEN": secret, "CANARY_NAME": secret})
    assert done.returncode == 0, done.stderr
    (finished,) = rig.of_type("tool.finished")
    exact = rig.folder / "exact"
    assert rig.muse("show", f"last@{finished['seq']}", "-o", str(exact)).returncode == 0
    data = exact.read_bytes()
    assert data.startswith(b"[secret CANARY_")
    assert data.count(b"0123456789abcde\n") > 30_000
    assert secret.encode() not in data + finished["body"]["text"].encode()
