"""Tools for models whose chat template has no place for them: the prompt explains them, in words.

The calls are those of `octavo.text.parsing.tools.generic`. Earlier calls and their results become plain messages too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.text.parsing.parts import Tool

_HOW = """\
You can call these functions, one JSON object on each line:
{tools}

To call one, answer with nothing but a JSON object for each call: {{"name": "…", "arguments": {{…}}}}
You are told the results, and answer then."""


def tools_in_prompt(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The conversation with the tools explained in the system message, and no trace of tools in the others."""
    plain = [_plain(message) for message in messages]
    merged: list[dict[str, Any]] = []
    for before, message in zip((None, *messages), plain, strict=False):
        # Templates want user and assistant in turn, so that results stand together with what follows them.
        after_result = before is not None and before["role"] == "tool"
        if merged and after_result and message["role"] == merged[-1]["role"]:
            merged[-1] = {**merged[-1], "content": f"{merged[-1]['content']}\n\n{message['content']}"}
        else:
            merged.append(message)
    if not tools:
        return merged
    how = _HOW.format(tools="\n".join(map(_described, tools)))
    if merged and merged[0]["role"] == "system":
        return [{**merged[0], "content": f"{merged[0]['content']}\n\n{how}".strip()}, *merged[1:]]
    return [{"role": "system", "content": how}, *merged]


def _described(tool: Tool) -> str:
    about = {"description": tool.description} if tool.description else {}
    return json.dumps({"name": tool.name, **about, "parameters": tool.parameters}, ensure_ascii=False)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    if message["role"] == "tool":
        name = kept.pop("name", "the function")
        return {**kept, "role": "user", "content": f"Result of {name}:\n{message['content']}"}
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls") or ()]
    if calls:
        kept["content"] = "\n".join(filter(None, (message["content"], *calls)))
    return kept
