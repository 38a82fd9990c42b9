"""Foreign sessions as they are found on disk."""

from pathlib import Path

from muse.app.foreign import find
from tests.ingest.made import jsonl, said


def test_a_link_among_the_files_of_a_sessions_agents_is_not_followed(tmp_path: Path) -> None:
    """A folder of sessions that somebody else made must not pull in what lies elsewhere on this machine."""
    session, private = tmp_path / "s.jsonl", tmp_path / "private"
    session.write_bytes(jsonl([said("a", None, "find the cat")]))
    private.write_bytes(jsonl([said("x", None, "of another", isSidechain=True, agentId="A1")]))
    beside = session.with_suffix("") / "subagents"
    beside.mkdir(parents=True)
    (beside / "agent-A1.jsonl").symlink_to(private)
    (beside / "agent-A2.jsonl").write_bytes(private.read_bytes())
    found = find(session)
    assert found is not None
    assert [file.name for file in found.files] == ["s.jsonl", "s/subagents/agent-A2.jsonl"]
