"""Chat templates in the manner of well-known families, and conversations to try them on."""

from __future__ import annotations

from typing import Any

CHATML = """
{%- for message in messages -%}
    <|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
    <|im_start|>assistant
{% endif -%}
"""

# Headers, trimmed contents, a date, tools as indented JSON in the first user message, tool calls as JSON.
HEADERS = """
{{- bos_token }}
{%- set ns = namespace(first=true) %}
{%- if not date is defined %}{% set date = "26 Jul 2024" %}{% endif %}
{{- "<|head|>system<|/head|>\\n\\nToday: " + date + "\\n" }}
{%- if messages[0]['role'] == 'system' %}
    {{- messages[0]['content'] | trim }}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- "<|eot|>" }}
{%- for message in rest %}
    {{- "<|head|>" + message['role'] + "<|/head|>\\n\\n" }}
    {%- if tools is not none and message.role == 'user' and ns.first %}
        {%- set ns.first = false %}
        {{- "Functions:\\n" }}
        {%- for tool in tools %}
            {{- tool | tojson(indent=4) }}
            {{- "\\n\\n" }}
        {%- endfor %}
    {%- endif %}
    {%- if 'tool_calls' in message %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' }}
            {{- call.function.arguments | tojson }}
            {{- "}" }}
        {%- endfor %}
    {%- else %}
        {{- message['content'] | trim }}
    {%- endif %}
    {{- "<|eot|>" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|head|>assistant<|/head|>\\n\\n" }}
{%- endif %}
"""

# Instruction brackets, the system text glued to the last user message, tools before it.
BRACKETS = """
{%- if messages[0].role == "system" %}
    {%- set system, loop_messages = messages[0].content, messages[1:] %}
{%- else %}
    {%- set system, loop_messages = "", messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == "user" %}
        {%- if tools and loop.last %}{{ "[TOOLS] " ~ (tools | tojson) ~ "[/TOOLS]" }}{% endif %}
        {%- if loop.last and system %}{{ "[INST] " + system + "\\n\\n" + message.content + "[/INST]" }}
        {%- else %}{{ "[INST] " + message.content + "[/INST]" }}{% endif %}
    {%- elif message.role == "tool" %}
        {{- '[RESULT] {"content": ' + message.content | string + "}[/RESULT]" }}
    {%- elif message.tool_calls is defined and message.tool_calls %}
        {{- "[CALLS] [" }}
        {%- for call in message.tool_calls %}
            {{- call.function | tojson }}{{ "]" if loop.last else ", " }}
        {%- endfor %}
        {{- eos_token }}
    {%- else %}
        {{- " " + message.content + eos_token }}
    {%- endif %}
{%- endfor %}
"""

# ChatML with tools in XML tags, reasoning, a search backwards, macros and a generation block.
TAGS = """
{%- macro turn(role, text) %}{{ '<|im_start|>' ~ role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}{% endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- turn('system', messages[0].content) }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {% generation %}
        {%- if message.reasoning_content is string and loop.index0 > ns.last %}
            {{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content if message.content is string else '' }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{ call.function.name }}{{ '", "arguments": ' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {% endgeneration %}
        {{- '\\n' }}
    {%- elif message.role == 'tool' %}
        {{- turn('user', '<tool_response>\\n' + message.content + '\\n</tool_response>') }}
    {%- else %}
        {{- turn(message.role, message.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""

# Other role names, contents trimmed, system text in front of the first user message.
TURNS = """
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""

TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "brackets": BRACKETS, "tags": TAGS, "turns": TURNS}

_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich <ZH>", "days": 2}},
}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "  Hi <b>you</b> & 'me' 😀\n"}],
    "turns": [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2", "reasoning_content": "\neasy\n"},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": " You are welcome.", "reasoning": "polite", "name": None},
    ],
    "tools": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": '{"t": 21}', "tool_call_id": "c1"},
    ],
}

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in <city>",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "B&B"]}}},
        },
    }
]
