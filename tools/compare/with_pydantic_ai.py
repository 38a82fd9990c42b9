"""One life of the task under Pydantic AI with DBOS, as the documentation of both recommends for durable execution.

`python with_pydantic_ai.py FOLDER`: begins the task of FOLDER (task.json), or goes on with it when its record is there.
Used: the `DBOSDurability` capability (each model request is a step), the tool as a `@DBOS.step`, the run inside a
`@DBOS.workflow` with a fixed id, the system database in SQLite, and `DBOS.launch()`, which recovers what was pending
(ai.pydantic.dev: "Durable Execution with DBOS"). Runs in an environment of its own and knows nothing of muse.
"""

import asyncio
import json
import sys
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

FOLDER = Path(sys.argv[1])
TASK = json.loads((FOLDER / "task.json").read_text())
RECORD = FOLDER / "record.sqlite"


def next_command(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Asks for the next command of the task; how many it has asked for stands in the conversation."""
    said = [f"{part.part_kind}: {getattr(part, 'content', '')}" for message in messages for part in message.parts]
    with (FOLDER / "told.jsonl").open("a") as told:
        told.write(json.dumps(said) + "\n")
    number = sum(message.kind == "response" for message in messages)
    if number < len(TASK["commands"]):
        return ModelResponse(parts=[ToolCallPart("shell", {"command": TASK["commands"][number]}, f"call_{number}")])
    return ModelResponse(parts=[TextPart("Done.")])


DBOS(config=DBOSConfig(name="compare", system_database_url=f"sqlite:///{RECORD}", run_admin_server=False))
agent = Agent(FunctionModel(next_command), name="worker", capabilities=[DBOSDurability()])


@agent.tool_plain
@DBOS.step()
async def shell(command: str) -> str:
    """Run a command of the shell."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return f"{output.decode()}exit code {process.returncode}"


@DBOS.workflow()
async def work(prompt: str) -> str:
    """The whole task."""
    return (await agent.run(prompt)).output


async def main() -> None:
    """Begin, or go on."""
    begun = RECORD.exists()
    DBOS.launch()
    if begun and await DBOS.get_workflow_status_async("task") is not None:
        handle = await DBOS.retrieve_workflow_async("task")
    else:
        with SetWorkflowID("task"):
            handle = await DBOS.start_workflow_async(work, TASK["prompt"])
    print(await handle.get_result())
    DBOS.destroy()


asyncio.run(main())
