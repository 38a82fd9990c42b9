"""The tools that every agent has: files of the workspace, search, and the shell."""

import os
import shutil
from collections.abc import Mapping

from muse.effect.programs import search_path
from muse.effect.protocol import Tool
from muse.effect.runner import Runner
from muse.effect.sandbox import NO_SANDBOX, GuardedTool, Sandbox
from muse.effect.tool.apply import ApplyTool
from muse.effect.tool.children import Children
from muse.effect.tool.diff import DiffTool
from muse.effect.tool.edit import EditTool
from muse.effect.tool.glob import GlobTool
from muse.effect.tool.grep import GrepTool
from muse.effect.tool.kept import OutputTool, ReadOutput
from muse.effect.tool.masking import KnownSecrets, MaskedTool
from muse.effect.tool.read import ReadTool
from muse.effect.tool.recall import ReadLane, RecallTool
from muse.effect.tool.shell import ShellTool
from muse.effect.tool.stop import GetBackground, StopTool
from muse.effect.tool.write import WriteTool

__all__ = ["Children", "GetBackground", "ReadLane", "ReadOutput", "builtin_tools"]


def builtin_tools(
    runner: Runner,
    *,
    read_output: ReadOutput | None = None,
    read_lane: ReadLane | None = None,
    background: GetBackground | None = None,
    children: Children | None = None,
    environment: Mapping[str, str] | None = None,
    extra_names: tuple[str, ...] = (),
    secrets: KnownSecrets | None = None,
    sandbox: Sandbox = NO_SANDBOX,
) -> dict[str, Tool]:
    """The built-in tools by name.

    With `read_output` there is also the tool `output`, which reads what was left out of an earlier result; with
    `read_lane` besides, the tool `recall`, which reads what has left the conversation; with `background`, the tool
    `stop`, which ends what an earlier command left running.
    `environment` is what commands may see of (default: this process's); `extra_names` are the variables that the user
    lets through besides the usual ones. `secrets` are what no model and no log gets to see (default: the values of the
    variables of `environment` that are named like secrets). `sandbox` is what commands run in, and what the file tools
    keep to.
    """
    environment = os.environ if environment is None else environment
    known = KnownSecrets.of_environment(environment) if secrets is None else secrets
    tools: list[Tool] = [
        ReadTool(),
        GuardedTool(WriteTool(known), sandbox),
        GuardedTool(EditTool(known), sandbox),
        GlobTool(),
        GrepTool(_ripgrep(sandbox.writable)),
        ShellTool(
            runner,
            environment,
            extra_names,
            secrets=known,
            has_output_tool=read_output is not None,
            has_stop_tool=background is not None,
            sandbox=sandbox,
        ),
    ]
    if read_output is not None:
        tools.append(OutputTool(read_output))
        if read_lane is not None:
            tools.append(RecallTool(read_output, read_lane))
    if background is not None:
        tools.append(StopTool(background))
    if children is not None:
        path = search_path(sandbox.writable)
        git = shutil.which("git", path=path)
        apply = ApplyTool(children, known, refusal=sandbox.refusal, git=git, environment={"PATH": path})
        tools += [DiffTool(children), apply]
    return {tool.spec.name: MaskedTool(tool, known) for tool in tools}


def _ripgrep(writable: tuple[str, ...]) -> str | None:
    """Where ripgrep is, if it is anywhere that no command may write to."""
    return shutil.which("rg", path=search_path(writable))
