"""Thinking aloud before the answer, as reasoning models write it, taken off.

Only what stands at the beginning is taken for it: marks of such a kind in the middle of a page belong to the
page. Where a chat template writes the opening mark into the prompt, an answer begins within the thoughts and
has the closing mark alone: all before the first of those is thoughts, too, unless it begins as JSON does.
"""

from __future__ import annotations

import re

UNFINISHED = "reasoning not finished"
"""Why there is no value when an answer never gets to the point."""

_PAIRS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, GLM-4.5, MiniCPM-V
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
)
_CHANNEL = (
    "<|channel|>"  # gpt-oss: <|channel|>analysis<|message|>…<|channel|>final<|message|>…<|return|>
)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]{0,40}<\|message\|>")
_CHANNEL_END = ("<|return|>", "<|end|>")
_WRAPPED = (
    ("<answer>", "</answer>"),
    ("<|begin_of_box|>", "<|end_of_box|>"),  # GLM-4.1V
)


def strip_reasoning(text: str) -> str | None:
    """The answer without the thoughts before it and the marks around it; None if it is all thoughts."""
    if "<" not in text and "[" not in text and "◁" not in text:
        return text
    rest = _after_thoughts(text)
    if rest is None:
        return None
    inner = rest.strip()
    for opening, closing in _WRAPPED:
        if inner.startswith(opening):
            inner = inner[len(opening) :].removesuffix(closing)
            return inner
    return rest


def _after_thoughts(text: str) -> str | None:
    start = text.lstrip()
    if start.startswith(("<|start|>assistant", _CHANNEL)):
        return _final_channel(start)
    lowered = start[:16].lower()
    for opening, closing in _PAIRS:
        if lowered.startswith(opening.lower()):
            _, found, rest = start.partition(closing)
            return rest if found else None
    if start.startswith(("{", "[", "```")):  # an answer, whose texts may hold anything
        return text
    for opening, closing in _PAIRS:
        before, found, rest = text.partition(closing)
        if found and opening not in before:
            return rest
    return text


def _final_channel(text: str) -> str | None:
    finals = list(_FINAL.finditer(text))
    if not finals:
        return None
    rest = text[finals[-1].end() :].rstrip()
    for end in _CHANNEL_END:
        rest = rest.removesuffix(end)
    return rest
