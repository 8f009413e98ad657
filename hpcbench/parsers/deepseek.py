"""DeepSeek-OCR's answers: Markdown with places on the page, which are removed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """A page as DeepSeek-OCR reads it."""

    markdown: str
    """Its text, tables as HTML, formulas as LaTeX, images as `![](images/0.jpg)`."""
    malformed: int
    """Regions, `<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2], …]<|/det|>`, that could not be read; their text
    is kept, except that of an incomplete last region."""


def layout(text: str) -> Layout:
    """Read an answer of DeepSeek-OCR or DeepSeek-OCR-2, in time linear in its length; any text is accepted.

    As in the authors' scripts, images become references, other labels are removed, `\\coloneqq` and
    `\\eqqcolon` are written out, and numbers of formulas, `<center>` and surplus blank lines are removed.
    Unlike them, this function reads places as JSON (they call `eval` on the model's words), and in an answer
    of regions only, as to `OCR this image`, the labels are the text.
    """
    pieces = _MARK.split(text.replace(_END, ""))  # text, mark, text, mark, … text
    out = [pieces[0]]
    labels: list[str] = []
    images = malformed = 0
    at = 1
    while at < len(pieces):
        label = _label(pieces[at : at + 7])
        if label is None and _breaks_off(pieces[at : at + 7]):
            malformed += 1
            break
        if label is None:
            # the second half of a region was counted at its first mark
            half = pieces[at - 2 : at - 1] == ["<|/ref|>"] and not pieces[at - 1].strip()
            malformed += pieces[at] == "<|ref|>" or (pieces[at] == "<|det|>" and not half)
            out += pieces[at : at + 2]
            at += 2
            continue
        labels.append(label)
        if label == "image":
            out.append(f"![](images/{images}.jpg)")
            images += 1
        out.append(pieces[at + 7])
        at += 8
    markdown = _tidy("".join(out))
    if not markdown:
        markdown = "\n".join(one for one in labels if one not in _CLASSES)
    return Layout(markdown, malformed)


_END = "<｜end▁of▁sentence｜>"
_MARK = re.compile(r"(<\|/?(?:ref|det)\|>)")
_CLASSES = frozenset({"title", "sub_title", "text", "table", "formula"})
_FORMULA = re.compile(r"(\\\[|\\\]|\n)")
_NUMBER = re.compile(r"\\quad *\([^()\n]*\)")
_WRITTEN_OUT = {r"\coloneqq": ":=", r"\eqqcolon": "=:", "<center>": "", "</center>": ""}


def _label(marks: list[str]) -> str | None:
    """The label of a region in seven pieces; None if they form none."""
    if marks[::2] != ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"] or marks[3]:
        return None
    try:
        found = json.loads(marks[5])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found or not all(map(_is_box, found)):
        return None
    return marks[1].strip()


def _breaks_off(marks: list[str]) -> bool:
    """Whether an answer ends within a region's coordinates: such an end, if kept, would hide a loop."""
    whole = marks[:5:2] == ["<|ref|>", "<|/ref|>", "<|det|>"] and not marks[3]
    return whole and len(marks) == 6 and not marks[5].strip("0123456789,. []")


def _is_box(entry: object) -> bool:
    """Whether a place has four coordinates."""
    return (
        isinstance(entry, list)
        and len(entry) == 4
        and all(type(value) in (int, float) and value == value for value in entry)
    )


def _tidy(text: str) -> str:
    for old, new in _WRITTEN_OUT.items():
        text = text.replace(old, new)
    parts = _FORMULA.split(text)
    for index in range(1, len(parts) - 2, 2):
        if parts[index] == r"\[" and parts[index + 2] == r"\]":
            parts[index + 1] = _NUMBER.sub("", parts[index + 1]).strip()
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()
