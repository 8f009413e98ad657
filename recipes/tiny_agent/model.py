"""The tiny model that looks again: the demo's model with a few more tokens, and another chat template.

It calls `crop` in the form of Hermes, as text. A tool's result comes in a user's message: the image, then
text.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast, Qwen2VLForConditionalGeneration

from recipes.tiny_vlm.model import ROOT, build_tokenizer

START_FROM = ROOT / "examples" / "demo" / "model"

TOOLS = "<tools>"
"""Stands for every description of tools: this model knows only one tool, and has no use for the words."""
TAGS = (TOOLS, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
WORDS = ("crop", "arguments", "image", "box", "pixels")

RESPONSE = "<tool_response>\nimage 2: Part of image 1, {width} × {height} pixels.\n</tool_response>"
"""The loop's text about a tool's image. Training varies it, since an answer must not hang on it."""

# As the demo's template; and a description of tools becomes one token, a call is written out, and results
# that come as messages of their own join the user's message that shows their images.
CHAT_TEMPLATE = """\
{%- set results = namespace(text='') -%}
{%- if tools is defined and tools -%}
{{- '<|im_start|>system\\n<tools><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' and '<tool_call>' in message['content'] | string -%}
{{- '<|im_start|>system\\n<tools><|im_end|>\\n' -}}
{%- elif message['role'] == 'tool' -%}
{%- set words = message['content'] if message['content'] is string else message['content'][0]['text'] -%}
{%- set results.text = results.text + '<tool_response>\\n' + words + '\\n</tool_response>' -%}
{%- else -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- results.text + message['content'] -}}
{%- elif message['content'] -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- endif -%}
{%- endfor -%}
{{- results.text -}}
{%- for content in message['content'] -%}
{%- if content['type'] == 'text' -%}
{{- content['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- set results.text = '' -%}
{%- for call in message['tool_calls'] or [] -%}
{%- set function = call['function'] -%}
{%- set given = function['arguments'] -%}
{{- '<tool_call>\\n{"name": "' + function['name'] + '", "arguments": ' -}}
{{- given if given is string else given | tojson -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if results.text -%}
{{- '<|im_start|>user\\n' + results.text + '<|im_end|>\\n' -}}
{%- endif -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def extended_tokenizer() -> PreTrainedTokenizerFast:
    """The demo's tokenizer and, behind its tokens, ours; they are not special, so that answers show them."""
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=False) for word in WORDS])
    return tokenizer


def load(tokenizer: PreTrainedTokenizerFast, folder: Path) -> Qwen2VLForConditionalGeneration:
    """The model of a folder, with an embedding for each token."""
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    if model.config.text_config.vocab_size < len(tokenizer):
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
    return model


def crop_call(box: tuple[int, int, int, int]) -> str:
    """The call of the tool."""
    call = {"name": "crop", "arguments": {"image": 1, "box": box}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
