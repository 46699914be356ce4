"""Small chat templates of the common families, with tokenizers that have their control tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

from tasks.models.chat import ChatRenderer
from tests.tiny import CHATML, make_tokenizer

LLAMA3 = """\
{{- '<|begin_of_text|>' }}
{%- for message in messages %}
    {%- set role = 'ipython' if message.role == 'tool' else message.role %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

# As Qwen3's: thoughts are kept since the last user's message and dropped before it.
QWEN3 = """\
{%- set ns = namespace(last_query=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last_query = loop.index0 %}{%- endif %}
{%- endfor %}
{%- if tools %}
    {{- '<|im_start|>system\\nCall tools as <tool_call>{"name": …, "arguments": …}</tool_call>.\\n' }}
    {%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- set thought = message.reasoning_content or '' %}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {%- if loop.first and message.content or not loop.first %}{{ '\\n' }}{% endif %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

SPECIAL = {
    "chatml": (CHATML, ()),
    "llama3": (
        LLAMA3,
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"),
    ),
    "qwen3": (QWEN3, ()),
}
ORDINARY = {
    "qwen3": ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
}
FAMILIES = tuple(SPECIAL)


@cache
def tokenizer(family: str) -> Any:
    template, special = SPECIAL[family]
    made = make_tokenizer(template, ORDINARY.get(family, ()))
    made.add_tokens(list(special), special_tokens=True)
    return made


@cache
def renderer(family: str) -> ChatRenderer:
    return ChatRenderer(tokenizer(family))


def ids_of(family: str, text: str) -> list[int]:
    """As the policy would sample `text`: spelled control tokens are control tokens."""
    return tokenizer(family).encode(text, add_special_tokens=False)


def text_of(family: str, ids: list[int]) -> str:
    return tokenizer(family).decode(ids, skip_special_tokens=False)


def control_ids(family: str, ids: list[int]) -> list[int]:
    """What of `ids` is a control token."""
    return [i for i in ids if i in tokenizer(family).added_tokens_decoder]


END = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "qwen3": "<|im_end|>"}
