"""A pytest plugin: sessions that were kept as fixtures, checked against what the project gives today.

    pytest_plugins = ["muse.testing.golden"]      # in the project's topmost conftest.py

and in pytest's settings `muse_golden = "tests/golden"` (or `--muse-golden DIR` on the command line). Nothing of it is
loaded in a run that does not ask for it. One test for each fixture and each of its checks; a failure is a readable
difference and no traceback. How a session becomes a fixture: docs/golden.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MANIFEST = "golden.toml"
"""The file that makes a folder a fixture."""


class Differs(Exception):
    """What is recorded is not what would be today; the text says how."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`muse_golden` in the settings, `--muse-golden` on the command line."""
    parser.addini("muse_golden", "Folder with the fixtures of muse sessions.", default="")
    parser.addini(
        "muse_workspace", "Folder that the sessions worked in (default: the one that each worked in).", default=""
    )
    group = parser.getgroup("muse")
    group.addoption("--muse-golden", default="", metavar="DIR", help="Check the muse sessions kept in DIR.")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the folder of fixtures too, where not just some tests were named, or where it was named itself."""
    source, sources = config.args_source, pytest.Config.ArgsSource
    at_top = source is sources.INVOCATION_DIR and config.invocation_params.dir.resolve() == config.rootpath.resolve()
    everything = at_top or source is sources.TESTPATHS
    folder = _folder(config)
    if folder is None or not (everything or config.getoption("--muse-golden")):
        return
    if not folder.is_dir():
        raise pytest.UsageError(f"muse_golden: there is no folder {folder}")
    given = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    if not any(folder.is_relative_to(one) for one in given):
        config.args.append(str(folder))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A manifest below the folder of fixtures is a file of tests."""
    folder = _folder(parent.config)
    if file_path.name != MANIFEST or folder is None or not file_path.is_relative_to(folder):
        return None
    return GoldenFile.from_parent(parent, path=file_path)


def _folder(config: pytest.Config) -> Path | None:
    said = str(config.getoption("--muse-golden"))
    if said:
        return (config.invocation_params.dir / said).resolve()
    ini = str(config.getini("muse_golden"))
    return (config.rootpath / ini).resolve() if ini else None


class GoldenFile(pytest.File):
    """One fixture."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each check that the manifest names."""
        from muse.app.golden import read_fixture
        from muse.errors import UsageError

        try:
            fixture = read_fixture(self.path.parent)
        except UsageError as error:
            raise self.CollectError(f"{error}\n{error.hint}") from error
        for what in fixture.manifest.checks:
            yield GoldenItem.from_parent(self, name=f"{fixture.name}-{what}", fixture=fixture, what=what)


class GoldenItem(pytest.Item):
    """One check of one fixture."""

    def __init__(self, *, fixture: Any, what: Any, **given: Any) -> None:
        super().__init__(**given)
        self._fixture, self._what = fixture, what

    def runtest(self) -> None:
        """Raises `Differs` with the difference."""
        from muse.app.golden import check, workspace_of

        ini, root = self.config.getini("muse_workspace"), self.config.rootpath
        workspace = (root / ini).resolve() if ini else workspace_of(self._fixture, root)
        if wrong := check(self._fixture, self._what, workspace):
            raise Differs(wrong)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Just the difference; of what kept it from being looked for, just the word and the hint."""
        from muse.errors import MuseError

        if isinstance(excinfo.value, Differs):
            return str(excinfo.value)
        if isinstance(excinfo.value, MuseError):
            return f"{excinfo.value}\n{excinfo.value.hint}".rstrip()
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands, for the head of a failure."""
        return self.path, None, f"muse session {self._fixture.name}: {self._what}"
