"""A socket that becomes readable just as its reader is cancelled: nothing is said of it, and of other faults all is."""

import asyncio
import logging
import socket
from pathlib import Path

import anyio
import pytest

from muse.effect.runner.client import _forgive_late_wakes


async def cancelled_as_something_comes(path: Path, *, forgiven: bool) -> None:
    """One answer comes in the very round of the loop in which nobody waits for it any more."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        stream = await anyio.connect_unix(path)
        peer, _ = listener.accept()
        if forgiven:
            _forgive_late_wakes()
        async with stream, anyio.create_task_group() as tasks:
            tasks.start_soon(stream.receive)
            await anyio.wait_all_tasks_blocked()
            peer.sendall(b"too late")
            asyncio.get_running_loop().call_soon(tasks.cancel_scope.cancel)
            await anyio.sleep(0.01)
        peer.close()


@pytest.mark.parametrize("forgiven", [False, True])
def test_a_reader_that_is_cancelled_as_something_comes_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forgiven: bool
) -> None:
    with caplog.at_level(logging.ERROR, "asyncio"):
        anyio.run(lambda: cancelled_as_something_comes(tmp_path / "s", forgiven=forgiven))
    assert len(caplog.records) == (0 if forgiven else 1), "if none comes unforgiven, anyio has mended it: drop this"


def test_any_other_fault_in_a_callback_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        _forgive_late_wakes()
        asyncio.get_running_loop().call_soon("no number".__add__, 7)
        await anyio.sleep(0.01)

    with caplog.at_level(logging.ERROR, "asyncio"):
        anyio.run(broken)
    assert [record.exc_info is not None for record in caplog.records] == [True]
