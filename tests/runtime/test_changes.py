"""The line of snapshots: what changed is recorded once, with the calls that were open, and failures are said."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from muse.effect.model.scripted import Step
from muse.effect.protocol import Tool, ToolCall, ToolResult, Verdict, Workspace
from muse.effect.snapshot import Snapshots
from muse.effect.tool.edit import EditTool
from muse.effect.tool.masking import KnownSecrets
from muse.effect.tool.write import WriteTool
from muse.event.content import BlobRef, FileChange, Observed, ToolSpec
from muse.event.envelope import Event
from muse.event.kinds import FilesChanged, FilesUnknown, NoteAdded, ToolFinished, ToolStarted, UserPrompted
from muse.log.protocol import Log
from muse.runtime.changes import Changes
from muse.runtime.check.walk import verify_story
from muse.runtime.dispatch import Equipment
from muse.runtime.session import Running, Session, claim
from tests.runtime.rig import RULES, SETTINGS, Rig
from tests.runtime.test_loop import Between, nothing

SECRET = "s3cret-value-of-a-key"


class Act:
    """A tool that does to files what its arguments say, after what its test waits for."""

    spec = ToolSpec(name="act", description="", schema="{}", recovery="opaque", writes=True)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.begun: dict[str, anyio.Event] = {}
        self.go: dict[str, anyio.Event] = {}
        self.die = False

    def paths(self, workspace: Workspace, args: Mapping[str, object]) -> tuple[str, ...]:
        return ()

    async def observe(self, call: ToolCall, workspace: Workspace, keep: Any) -> Observed:
        raise AssertionError("an opaque call is not looked at by its tool")

    async def run(
        self, call: ToolCall, observed: Observed, workspace: Workspace, keep: Any, keep_file: Any, show: Any,
        attach: bool,
    ) -> ToolResult:  # fmt: skip
        assert observed.tree
        for name, text in call.args.items():
            if name in self.go:
                self.begun[name].set()
                await self.go[name].wait()
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(str(text))
        return ToolResult(status="ok", text="acted")

    async def reconcile(self, call: ToolCall, observed: Observed, workspace: Workspace) -> Verdict:
        return Verdict(verdict="unknown", evidence="nobody saw")

    def hold(self, *names: str) -> None:
        for name in names:
            self.begun[name], self.go[name] = anyio.Event(), anyio.Event()


class FileRig(Rig):
    """A session whose tools change files of a workspace, recorded through real snapshots."""

    def __init__(self, folder: Path, *script: Step, exclusive: bool = False) -> None:
        super().__init__(folder, [*script, Step(text="done")])
        self.root, self.muse = folder / "work", folder / "muse"
        self.root.mkdir()
        self.act = Act(self.root)
        self.exclusive = exclusive
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
        self.contents: list[Log] = []

    def open_files(
        self,
        more: Mapping[str, Tool] | None = None,
        look: type[Snapshots] = Snapshots,
        wrap: Callable[[Log], Log] = lambda log: log,
    ) -> tuple[Running, Snapshots]:
        known = KnownSecrets({"KEY": SECRET})
        has: dict[str, Tool] = {"act": self.act, "edit": EditTool(known), "write": WriteTool(known), **(more or {})}
        log = wrap(self.handle())
        ownership = claim(log, SETTINGS, str(self.root), lambda epoch: tuple(tool.spec for tool in has.values()))
        snapshots = look(self.muse, self.root, f"s.{ownership.epoch}", environment=self.environment)
        contents = self.handle()
        self.contents.append(contents)
        equipment = Equipment(
            model=self.model,
            tools=has,
            workspace=Workspace(self.root),
            log=log,
            blobs=self.handle,
            settled=lambda call, attempt: None,
            on_signal=lambda call, text: None,
            changes=Changes(snapshots, lambda: contents, known.is_in, exclusive=self.exclusive),
        )
        return Running(log, ownership, RULES, equipment, self.seen.append), snapshots

    def go(self, prompt: str = "go", more: Mapping[str, Tool] | None = None) -> Session:
        self.submit(UserPrompted(text=prompt))
        running, snapshots = self.open_files(more)
        try:
            return anyio.run(running.run)
        finally:
            self.end(running, snapshots)

    def end(self, running: Running, snapshots: Snapshots) -> None:
        snapshots.close()
        for log in self.contents:
            log.close()
        self.contents.clear()
        running.release()

    def files(self) -> list[FilesChanged | FilesUnknown]:
        return [event.body for event in self.events() if isinstance(event.body, FilesChanged | FilesUnknown)]

    def said(self) -> list[tuple[tuple[str, ...], bool, dict[str, tuple[bytes | None, bytes | None]]]]:
        """Of each change its calls, whether others may have, and the contents by path."""
        found = []
        for body in self.files():
            assert isinstance(body, FilesChanged), body
            changes = {one.path: (self.content(one.before), self.content(one.after)) for one in body.changes}
            found.append((body.calls, body.external, changes))
        return found

    def content(self, ref: BlobRef | None) -> bytes | None:
        if ref is None:
            return None
        log = self.handle()
        try:
            data = log.get_blob(ref.blob)
        finally:
            log.close()
        assert len(data) == ref.length
        return data


def act(**files: str | None) -> tuple[str, dict[str, object]]:
    return ("act", dict(files))


def test_what_a_call_changed_stands_before_its_result_with_both_contents(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="2", b=None, c="new"),)))
    rig.root.joinpath("a").write_text("1")
    rig.root.joinpath("b").write_text("b")
    rig.go()
    assert rig.said() == [(("main/2",), True, {"a": (b"1", b"2"), "b": (b"b", None), "c": (None, b"new")})]
    types = [event.type for event in rig.events()]
    assert types.index("tool.started") < types.index("files.changed") < types.index("tool.finished")


def test_in_a_folder_of_its_own_a_change_is_the_calls(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="1"),)), exclusive=True)
    rig.go()
    assert rig.said() == [(("main/2",), False, {"a": (None, b"1")})]


def test_a_call_that_changes_nothing_leaves_no_event(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(),)))
    rig.go()
    assert rig.files() == []


def test_what_others_change_between_calls_is_recorded_at_the_next(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="1"),)), Step(text="waits"), Step(uses=(act(b="1"),)))
    rig.go()
    rig.root.joinpath("a").write_text("by a person")
    rig.go("and on")
    assert rig.said() == [
        (("main/2",), True, {"a": (None, b"1")}),
        ((), True, {"a": (b"1", b"by a person")}),
        (("main/5",), True, {"b": (None, b"1")}),
    ]
    events = rig.events()
    started = [event.seq for event in events if isinstance(event.body, ToolStarted)]
    external = [event.seq for event in events if isinstance(event.body, FilesChanged) and not event.body.calls]
    assert started[0] < external[0] < started[1]


def test_a_look_names_what_led_to_it_also_when_somebody_speaks_just_before_that_is_durable(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, *(Step(uses=(act(**{f"a{n}": "1"}),)) for n in range(3)))

    def interrupt(append: int) -> None:
        rig.root.joinpath("b").write_text(f"by a person, {append}")
        rig.submit(NoteAdded(text=f"before append {append}"))

    rig.submit(UserPrompted(text="go"))
    running, snapshots = rig.open_files(wrap=lambda log: Between(log, interrupt, nothing))  # type: ignore[arg-type,return-value]
    try:
        assert anyio.run(running.run).outcome == "done"
    finally:
        rig.end(running, snapshots)
    types = {event.seq: event.type for event in rig.events()}
    looks = [event for event in rig.events() if isinstance(event.body, FilesChanged)]
    assert {types[event.cause] for event in looks} <= {"model.responded", "tool.started"}
    assert sum(not event.body.calls for event in looks if isinstance(event.body, FilesChanged)) >= 2
    assert verify_story(rig.handle(), RULES).divergence is None


def test_what_write_and_edit_say_of_themselves_is_not_recorded_twice(tmp_path: Path) -> None:
    rig = FileRig(
        tmp_path,
        Step(uses=(("write", {"path": "a", "content": "one\n"}), ("edit", {"path": "a", "old": "one", "new": "two"}))),
        Step(uses=(act(b="1"),)),
    )
    rig.go()
    assert rig.said() == [
        (("main/2",), False, {"a": (None, b"one\n")}),
        (("main/3",), False, {"a": (b"one\n", b"two\n")}),
        (("main/5",), True, {"b": (None, b"1")}),
    ]


def test_what_another_does_to_the_file_that_is_written_comes_after_it(tmp_path: Path) -> None:
    """So that the last word of the log on a file is what is on the disk."""

    class Meddled(WriteTool):
        async def run(self, *args: Any, **more: Any) -> ToolResult:
            result = await super().run(*args, **more)
            rig.root.joinpath("a").write_text("meddled")
            rig.root.joinpath("b").write_text("meddled too")
            return result

    rig = FileRig(tmp_path, Step(uses=(("write", {"path": "a", "content": "written"}),)))
    rig.root.joinpath("a").write_text("old")
    rig.go(more={"write": Meddled()})
    assert rig.said() == [
        (("main/2",), True, {"b": (None, b"meddled too")}),
        (("main/2",), False, {"a": (b"old", b"written")}),
        (("main/2",), True, {"a": (b"written", b"meddled")}),
    ]


def test_two_calls_at_once_share_what_cannot_be_told_apart(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="1", a2="1"), act(b="1", b2="1"))))
    rig.act.hold("a", "a2", "b", "b2")
    rig.submit(UserPrompted(text="go"))
    running, snapshots = rig.open_files()

    async def play() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.act.begun["a"].wait()
            await rig.act.begun["b"].wait()
            rig.act.go["a"].set()
            await rig.act.begun["a2"].wait()
            rig.act.go["a2"].set()
            while not any(isinstance(event.body, ToolFinished) for event in rig.seen):
                await anyio.sleep(0.01)
            rig.act.go["b"].set()
            rig.act.go["b2"].set()

    try:
        anyio.run(play)
    finally:
        rig.end(running, snapshots)
    assert rig.said() == [
        (("main/2", "main/3"), True, {"a": (None, b"1"), "a2": (None, b"1")}),
        (("main/3",), True, {"b": (None, b"1"), "b2": (None, b"1")}),
    ]


def test_calls_that_start_together_share_a_look(tmp_path: Path) -> None:
    looks = 0

    class Counted(Snapshots):
        def take(self) -> Any:
            nonlocal looks
            looks += 1
            return super().take()

    names = [f"f{n}" for n in range(8)]
    rig = FileRig(tmp_path, Step(uses=tuple(act(**{name: "1"}) for name in names)))
    rig.act.hold(*names)
    rig.submit(UserPrompted(text="go"))
    running, snapshots = rig.open_files(look=Counted)
    looks_before = 0

    async def play() -> None:
        nonlocal looks_before
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            for name in names:
                await rig.act.begun[name].wait()
            looks_before = looks
            for name in names:
                rig.act.go[name].set()

    try:
        anyio.run(play)
    finally:
        rig.end(running, snapshots)
    assert sum(len(changes) for _, _, changes in rig.said()) == 8
    assert looks_before <= 2  # of those that asked while one was under way, all share the next
    trees = {event.body.observed.tree for event in rig.events() if isinstance(event.body, ToolStarted)}
    assert len(trees) == 1


def test_many_files_are_many_events_and_the_last_names_the_snapshot(tmp_path: Path) -> None:
    class Many(Act):
        async def run(self, call: ToolCall, *args: Any, **more: Any) -> ToolResult:
            for n in range(1_000):
                (self.root / f"f{n}").write_text(f"{n}")
            return ToolResult(status="ok", text="made")

    rig = FileRig(tmp_path, Step(uses=(act(),)))
    rig.act = Many(rig.root)
    state = rig.go()
    bodies = [body for body in rig.files() if isinstance(body, FilesChanged)]
    assert [len(body.changes) for body in bodies] == [256, 256, 256, 232]
    assert {change.path for body in bodies for change in body.changes} == {f"f{n}" for n in range(1_000)}
    assert [bool(body.tree) for body in bodies] == [False, False, False, True]
    assert state.tree == bodies[-1].tree
    assert rig.content(bodies[2].changes[7].after) is not None


def test_a_name_that_is_no_text_keeps_its_bytes(tmp_path: Path) -> None:
    class Odd(Act):
        async def run(self, call: ToolCall, *args: Any, **more: Any) -> ToolResult:
            with open(os.fsencode(self.root) + b"/a\xff\nb", "wb") as file:
                file.write(b"1")
            return ToolResult(status="ok", text="made")

    rig = FileRig(tmp_path, Step(uses=(act(),)))
    rig.act = Odd(rig.root)
    rig.go()
    ((body),) = rig.files()
    assert isinstance(body, FilesChanged)
    (change,) = body.changes
    assert (change.path, rig.content(change.exact_path), rig.content(change.after)) == ("a�\nb", b"a\xff\nb", b"1")


def test_a_file_with_a_known_secret_is_withheld(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(env=f"KEY={SECRET}\n"),)), Step(uses=(act(env="KEY=\n"),)))
    rig.go()
    bodies = [body for body in rig.files() if isinstance(body, FilesChanged)]
    note = "withheld: the content holds a known secret"
    assert bodies[0].changes == (FileChange(path="env", after_mode=0o644, note=note),)
    assert (bodies[1].changes[0].before, bodies[1].changes[0].note) == (None, note)
    assert rig.content(bodies[1].changes[0].after) == b"KEY=\n"


def test_ignored_files_are_named(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(**{"out/x": "1", "seen": "1"}),)), Step(uses=(act(**{"out/x": "22"}),)))
    rig.root.joinpath(".gitignore").write_text("out/\n")
    rig.go()
    bodies = [body for body in rig.files() if isinstance(body, FilesChanged)]
    assert [[change.path for change in body.changes] for body in bodies] == [["seen", "out/"], ["out/"]]
    assert bodies[1].changes[0] == FileChange(path="out/", note="ignored by git: not copied")


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_look_is_said_and_no_older_one_is_used(tmp_path: Path) -> None:
    """Field bug B53: a failed `git add` and the tree of before used again lost two days of work."""

    class Broken(Act):
        async def run(self, call: ToolCall, *args: Any, **more: Any) -> ToolResult:
            (self.root / f"by {call.call[5:]}").write_text("1")
            if call.call == "main/2":
                shutil.rmtree(rig.muse / "snapshots")
                (rig.muse / "snapshots").write_text("no folder")
            if call.call == "main/4":
                (rig.muse / "snapshots").unlink()
            return ToolResult(status="ok", text="made")

    class Unseen(Broken):
        async def run(self, call: ToolCall, observed: Observed, *args: Any, **more: Any) -> ToolResult:
            trees.append(observed.tree)
            return await super().run(call, observed, *args, **more)

    trees: list[str] = []
    rig = FileRig(tmp_path, *(Step(uses=(act(),)) for _ in range(4)))
    rig.act = Unseen(rig.root)
    rig.go()
    bodies = rig.files()
    assert [type(body) for body in bodies] == [FilesUnknown, FilesUnknown, FilesChanged, FilesChanged]
    assert [body.calls for body in bodies] == [("main/2",), ("main/4",), ("main/6",), ("main/8",)]
    assert all(isinstance(body, FilesUnknown) and body.why for body in bodies[:2])
    assert [bool(tree) for tree in trees] == [True, False, True, True]
    paths = [change.path for body in bodies if isinstance(body, FilesChanged) for change in body.changes]
    assert paths == ["by 6", "by 8"]


def test_a_deleted_folder_of_snapshots_is_said_when_the_session_goes_on(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="1"),)), Step(text="waits"), Step(uses=(act(b="1"),)))
    rig.go()
    shutil.rmtree(rig.muse)
    rig.root.joinpath("a").write_text("changed meanwhile")
    rig.go("and on")
    first, gone, last = rig.files()
    assert isinstance(gone, FilesUnknown)
    assert (gone.calls, "gone from the folder of snapshots" in gone.why) == ((), True)
    assert isinstance(last, FilesChanged)
    assert [change.path for change in last.changes] == ["b"]
    assert isinstance(first, FilesChanged)


# -- after a crash -----------------------------------------------------------------------------------------------------


def crashed(rig: FileRig, names: Sequence[str]) -> None:
    """Run until the call is at `names`, then let go of everything as a killed process would."""
    rig.act.hold(*names)
    rig.submit(UserPrompted(text="go"))
    running, snapshots = rig.open_files()

    async def play() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.act.begun[names[-1]].wait()
            tasks.cancel_scope.cancel()

    try:
        anyio.run(play)
    finally:
        rig.act.go.clear()
        rig.end(running, snapshots)


def test_after_a_crash_the_model_is_told_which_files_the_call_changed(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="2", b=None, c="1", last="x"),)))
    rig.root.joinpath("a").write_text("1")
    rig.root.joinpath("b").write_text("b")
    crashed(rig, ["last"])
    rig.go("what happened?")
    events = rig.events()
    (body,) = rig.files()
    assert isinstance(body, FilesChanged)
    assert (body.calls, body.external, body.after_crash) == (("main/2",), True, True)
    assert [change.path for change in body.changes] == ["a", "b", "c"]
    (result,) = (event.body for event in events if isinstance(event.body, ToolFinished))
    assert result.status == "unknown"
    assert isinstance(result.text, str)
    assert "Files of the workspace that changed since it was started: a (changed), b (deleted), c (new)." in result.text
    order = [event.type for event in events if event.type in ("files.changed", "tool.finished")]
    assert order == ["files.changed", "tool.finished"]


def test_after_a_crash_what_was_recorded_already_is_not_recorded_again(tmp_path: Path) -> None:
    """Two at once: one ended and was recorded, then the host died; the other is told of both, the log of each once."""
    rig = FileRig(tmp_path, Step(uses=(act(a="1"), act(b="1", last="x"))))
    rig.act.hold("last")
    rig.submit(UserPrompted(text="go"))
    running, snapshots = rig.open_files()

    async def play() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await rig.act.begun["last"].wait()
            while not any(isinstance(event.body, ToolFinished) for event in rig.seen):
                await anyio.sleep(0.01)
            rig.root.joinpath("later").write_text("1")
            tasks.cancel_scope.cancel()

    try:
        anyio.run(play)
    finally:
        rig.act.go.clear()
        rig.end(running, snapshots)
    rig.go("on")
    paths = [change.path for body in rig.files() if isinstance(body, FilesChanged) for change in body.changes]
    assert sorted(paths) == ["a", "b", "later"]
    last = rig.files()[-1]
    assert isinstance(last, FilesChanged)
    assert last.after_crash
    results: dict[str, Event] = {e.body.call: e for e in rig.events() if isinstance(e.body, ToolFinished)}
    body = results["main/3"].body
    assert isinstance(body, ToolFinished)
    assert isinstance(body.text, str)
    assert "a (new), b (new), later (new)." in body.text


def test_a_crash_that_changed_nothing_is_told_as_that(tmp_path: Path) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(last="x"),)))
    crashed(rig, ["last"])
    rig.go("on")
    (result,) = (event.body for event in rig.events() if isinstance(event.body, ToolFinished))
    assert isinstance(result.text, str)
    assert "No file of the workspace changed since it was started" in result.text
    assert rig.files() == []


def test_many_files_are_told_in_short(tmp_path: Path) -> None:
    names = {f"f{n:03}": "1" for n in range(120)}
    rig = FileRig(tmp_path, Step(uses=(act(**names, last="x"),)))
    crashed(rig, ["last"])
    rig.go("on")
    (result,) = (event.body for event in rig.events() if isinstance(event.body, ToolFinished))
    assert isinstance(result.text, str)
    assert "f049 (new) and 70 more." in result.text


@pytest.mark.parametrize("lost", ["snapshots", "nothing"])
def test_after_a_crash_without_the_snapshots_it_is_said(tmp_path: Path, lost: str) -> None:
    rig = FileRig(tmp_path, Step(uses=(act(a="1", last="x"),)))
    rig.root.joinpath("old").write_text("1")
    crashed(rig, ["last"])
    if lost == "snapshots":
        shutil.rmtree(rig.muse)
    rig.go("on")
    (result,) = (event.body for event in rig.events() if isinstance(event.body, ToolFinished))
    assert isinstance(result.text, str)
    assert ("Which files it changed is not known" in result.text) == (lost == "snapshots")
    assert [type(body) for body in rig.files()] == [FilesUnknown if lost == "snapshots" else FilesChanged]
    assert rig.files()[0].calls == ("main/2",)
