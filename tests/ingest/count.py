"""What stands in a foreign session file, counted from the raw file by the rules of its format: no import of muse."""

import json
from pathlib import Path
from typing import Any

NOT_SAID = ("[Request interrupted", "<task-notification>", "<local-command-", "Caveat:", "<bash-stdout")
CONTEXT = ("<user_instructions>", "<environment_context>", "<turn_aborted>", "# AGENTS.md instructions")


def claude_code(*files: Path) -> dict[str, int]:
    lines = {
        v.get("uuid", i): v for f in files for i, v in enumerate(map(json.loads, f.read_bytes().splitlines()))
    }.values()
    users = [v["message"]["content"] for v in lines if v["type"] == "user"]
    blocks = [b for content in users if isinstance(content, list) for b in content]
    answers = [v for v in lines if v["type"] == "assistant" and not v.get("isApiErrorMessage")]
    results = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
    calls = [b for v in answers for b in v["message"]["content"] if b["type"] == "tool_use"]
    last = {(v["message"]["id"], v.get("requestId")): v["message"]["usage"]["output_tokens"] for v in answers}
    said = sum(_is_said(v) for v in lines)
    return {"said": said, "answers": len(last), "calls": len(calls), "results": len(results),
            "tokens": sum(last.values())}  # fmt: skip


def _is_said(v: dict[str, Any]) -> bool:
    if v["type"] == "attachment":
        queued = v["attachment"]
        return queued["type"] == "queued_command" and not queued["prompt"].startswith(NOT_SAID)
    if v["type"] != "user" or v.get("isMeta") or v.get("isCompactSummary") or v["isSidechain"]:
        return False
    content = v["message"]["content"]
    text = content if isinstance(content, str) else "".join(b.get("text", "") for b in content)
    return bool(text) and not text.startswith(NOT_SAID)


def codex(file: Path) -> dict[str, int]:
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    items = [v.get("payload", v) for v in lines if v.get("type") == "response_item" or "payload" not in v]
    spoken = [(v["role"], v["content"][0]["text"]) for v in items if v.get("type") == "message"]
    said = [text for role, text in spoken if role == "user" and not text.startswith(CONTEXT)]
    kinds = [v.get("type") for v in items]
    counts = [v["payload"]["info"] for v in lines if v.get("payload", {}).get("type") == "token_count"]
    tokens = max([c["total_token_usage"]["output_tokens"] for c in counts if c], default=0)
    calls = sum(kinds.count(kind) for kind in ("function_call", "custom_tool_call", "local_shell_call"))
    results = sum(kinds.count(kind) for kind in ("function_call_output", "custom_tool_call_output"))
    answers = sum(role == "assistant" for role, _ in spoken)
    return {"said": len(said), "answers": answers, "calls": calls, "results": results, "tokens": tokens}
