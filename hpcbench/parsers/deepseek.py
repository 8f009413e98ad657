"""DeepSeek-OCR's answers: Markdown with places on the page, which are removed or read as boxes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, as fractions of the page's width and height."""


@dataclass(frozen=True, slots=True)
class Region:
    """One `<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2], …]<|/det|>` of an answer."""

    label: str
    """Its kind, as written: title, text, table, image …, or the words themselves."""
    boxes: tuple[Box, ...]
    """Its boxes, at least one."""
    image: str | None = None
    """For an image, the file that the Markdown names."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A page as DeepSeek-OCR reads it."""

    markdown: str
    """Its text, tables as HTML, formulas as LaTeX, images as `![](images/0.jpg)`."""
    regions: tuple[Region, ...]
    """Its parts in the order of the answer."""
    malformed: int
    """Regions that could not be read; their text is kept, except that of an incomplete last region."""


def layout(text: str) -> Layout:
    """Read an answer of DeepSeek-OCR or DeepSeek-OCR-2, in time linear in its length; any text is accepted.

    As in the authors' scripts, images become references, other labels are removed, `\\coloneqq` and
    `\\eqqcolon` are written out, and numbers of formulas, `<center>` and surplus blank lines are removed.
    Unlike them, this function reads boxes as JSON (they call `eval` on the model's words), and in an answer
    of regions only, as to `OCR this image`, the labels are the text.
    """
    pieces = _MARK.split(text.replace(_END, ""))  # text, mark, text, mark, … text
    out = [pieces[0]]
    regions: list[Region] = []
    images = malformed = 0
    at = 1
    while at < len(pieces):
        region = _region(pieces[at : at + 7], images)
        if region is None and _breaks_off(pieces[at : at + 7]):
            malformed += 1
            break
        if region is None:
            # the second half of a region was counted at its first mark
            half = pieces[at - 2 : at - 1] == ["<|/ref|>"] and not pieces[at - 1].strip()
            malformed += pieces[at] == "<|ref|>" or (pieces[at] == "<|det|>" and not half)
            out += pieces[at : at + 2]
            at += 2
            continue
        regions.append(region)
        if region.image is not None:
            images += 1
            out.append(f"![]({region.image})")
        out.append(pieces[at + 7])
        at += 8
    markdown = _tidy("".join(out))
    if not markdown:
        markdown = "\n".join(one.label for one in regions if one.label not in _CLASSES)
    return Layout(markdown, tuple(regions), malformed)


_END = "<｜end▁of▁sentence｜>"
_MARK = re.compile(r"(<\|/?(?:ref|det)\|>)")
_CLASSES = frozenset({"title", "sub_title", "text", "table", "formula"})
_SCALE = 999  # the model's coordinates run from 0 to this
_FORMULA = re.compile(r"(\\\[|\\\]|\n)")
_NUMBER = re.compile(r"\\quad *\([^()\n]*\)")
_WRITTEN_OUT = {r"\coloneqq": ":=", r"\eqqcolon": "=:", "<center>": "", "</center>": ""}


def _region(marks: list[str], images: int) -> Region | None:
    """The region in seven pieces; None if they form none."""
    if marks[::2] != ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"] or marks[3]:
        return None
    try:
        found = json.loads(marks[5])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found:
        return None
    boxes = tuple(box for entry in found if (box := _box(entry)) is not None)
    if len(boxes) < len(found):
        return None
    label = marks[1].strip()
    return Region(label, boxes, f"images/{images}.jpg" if label == "image" else None)


def _breaks_off(marks: list[str]) -> bool:
    """Whether an answer ends within a region's coordinates: such an end, if kept, would hide a loop."""
    whole = marks[:5:2] == ["<|ref|>", "<|/ref|>", "<|det|>"] and not marks[3]
    return whole and len(marks) == 6 and not marks[5].strip("0123456789,. []")


def _box(entry: object) -> Box | None:
    """Four coordinates as fractions; a coordinate beyond the page moves to its edge."""
    if not isinstance(entry, list) or len(entry) != 4:
        return None
    if not all(type(value) in (int, float) and value == value for value in entry):
        return None
    left, top, right, bottom = (min(max(value, 0), _SCALE) / _SCALE for value in entry)
    return left, top, right, bottom


def _tidy(text: str) -> str:
    for old, new in _WRITTEN_OUT.items():
        text = text.replace(old, new)
    parts = _FORMULA.split(text)
    for index in range(1, len(parts) - 2, 2):
        if parts[index] == r"\[" and parts[index + 2] == r"\]":
            parts[index + 1] = _NUMBER.sub("", parts[index + 1]).strip()
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).strip()
