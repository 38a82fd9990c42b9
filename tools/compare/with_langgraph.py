"""One life of the task under LangGraph, as its documentation recommends for durable execution.

`python with_langgraph.py FOLDER`: begins the task of FOLDER (task.json), or goes on with it when its record is there.
Used: the SQLite checkpointer, `durability="sync"` (each step is on disk before the next one starts), a graph of a model
node and the prebuilt ToolNode, the side effect wrapped in a `@task`, one thread id, and `invoke(None, …)` to resume
(docs.langchain.com: LangGraph, "Durable execution"). Runs in an environment of its own and knows nothing of muse.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FOLDER = Path(sys.argv[1])
TASK = json.loads((FOLDER / "task.json").read_text())


class Scripted(BaseChatModel):
    """Asks for the next command of the task; how many it has asked for stands in the conversation."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        with (FOLDER / "told.jsonl").open("a") as told:
            told.write(json.dumps([f"{message.type}: {message.text}" for message in messages]) + "\n")
        number = sum(message.type == "ai" for message in messages)
        if number < len(TASK["commands"]):
            call = {"name": "shell", "args": {"command": TASK["commands"][number]}, "id": f"call_{number}"}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=answer)])


@task
def run(command: str) -> str:
    """Run a command of the shell."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return f"{done.stdout}exit code {done.returncode}"


@tool
def shell(command: str) -> str:
    """Run a command of the shell."""
    result: str = run(command).result()
    return result


def main() -> None:
    """Begin, or go on."""
    model = Scripted()
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([shell]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    with SqliteSaver.from_conn_string(str(FOLDER / "record.sqlite")) as saver:
        agent = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "task"}, "recursion_limit": 1000}
        begun = agent.get_state(config).values
        given = None if begun else {"messages": [HumanMessage(TASK["prompt"])]}
        state = agent.invoke(given, config, durability="sync")
    print(state["messages"][-1].text)


main()
