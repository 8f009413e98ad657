"""Rules of OCRBench v2 where an answer names boxes: text grounding, questions with a position, text spotting.

Fu et al., "OCRBench v2" (arXiv 2501.00321), `eval_scripts` of its code (`kits.OCRBENCH`):
`IoUscore_metric.py`, `spotting_metric.py` and the end-to-end protocol of the Robust Reading Competition in
`spotting_eval/script.py`. A box is left, top, right, bottom, in thousandths of the image.

- *Grounding*: intersection over union with the last box in the answer, `[1, 2, 3, 4]` or `(1, 2, 3, 4)`.
- *Position*: half for the `answer` of the object in the answer, by the rule for texts; half for the
  intersection over union of its `bbox`.
- *Spotting*: the answer lists `[left, top, right, bottom, "text"]`. A pair is right if intersection over
  union is above 0.5 and the texts are equal but for case and one punctuation mark at an end of the
  reference's; the value is the F-measure over boxes. References "###" do not count, nor do boxes that lie
  more than half in one of them.

Rules of the published code that count only if `published`: coordinates are whole numbers, others make a box
none; boxes outside 0 … 1000 are passed over (grounding, spotting); boxes without an area are like none; in
spotting the first free box of sufficient overlap is a reference's partner, with whatever text, so that the
order counts, equal boxes of the reference count twice, and what is no list of lists is read bracket by
bracket. Ours pairs so that most pairs are right, and gives 1 where nothing belongs and nothing is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpcbench.metrics.literals import (
    fences,
    literal,
    parsed_json,
    read_list,
    read_object,
    read_pairs,
)
from hpcbench.metrics.normalise import UnicodeForm, compose

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
Word = tuple[Box, str]
"""A box and the text in it."""

_FOUR = re.compile(r"[(\[]" + ",".join([r"\s*(\d+(?:\.\d+)?)\s*"] * 4) + r"[)\]]")
_FOUR_WHOLE = re.compile(r"[(\[]" + ",".join([r"\s*(\d+)\s*"] * 4) + r"[)\]]")
_ITEM = re.compile(r"[\[(]([^\[\]()]*)[\])]")
_QUOTED = re.compile(r"\s*\"(.*)\"\s*")
_MARKS = "!?.:,*\"()·[]/'"
_UNREADABLE = "###"
_OVERLAP = 0.5
_SCALE = 1000
_LARGEST = 1e9
"""Coordinates beyond are no pixels, and products of them would not be exact."""


# --- boxes ----------------------------------------------------------------------------------------------


def intersection_over_union(first: Box, second: Box) -> float:
    """Shared area / area of both together; two boxes without an area are 1 if equal, else 0."""
    if first == second:
        return 1.0
    return _overlap(first, second)


def _overlap(first: Sequence[float], second: Sequence[float]) -> float:
    shared = _shared(first, second)
    union = _area(first) + _area(second) - shared
    return shared / union if union else 0.0


def _shared(first: Sequence[float], second: Sequence[float]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0, width) * max(0, height)


def _area(box: Sequence[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def read_box(value: object) -> Box | None:
    """A box of four numbers, or texts of them."""
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return None
    left, top, right, bottom = map(_number, value)
    if left is None or top is None or right is None or bottom is None:
        return None
    return left, top, right, bottom


def outline(value: object) -> Box | None:
    """The box around a polygon x, y, x, y, … of two points and more."""
    if not isinstance(value, (list, tuple)) or len(value) < 4 or len(value) % 2:
        return None
    numbers = [_number(one) for one in value]
    across = [one for one in numbers[0::2] if one is not None]
    down = [one for one in numbers[1::2] if one is not None]
    if len(across) + len(down) < len(numbers):
        return None
    return min(across), min(down), max(across), max(down)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        value = value.strip()
        if len(value) > 40:
            return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) <= _LARGEST else None


def _published_overlap(given: object, expected: Box) -> float:
    """Overlap with anything that begins with four whole numbers."""
    try:
        box = [int(one) for one in given]  # type: ignore[attr-defined]
        return _overlap(box, [int(one) for one in expected])
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0.0


# --- grounding ------------------------------------------------------------------------------------------


def grounding(answer: str, expected: Box, published: bool) -> float:
    """Intersection over union with the last box that the answer names, 0 if it names none."""
    if published:
        boxes = [match.groups() for match in _FOUR_WHOLE.finditer(answer)]
        whole = [box for box in (_whole(box) for box in boxes) if box is not None]
        return _published_overlap(whole[-1], expected) if whole else 0.0
    box = last_box(answer)
    return 0.0 if box is None else intersection_over_union(box, expected)


def last_box(answer: str) -> Box | None:
    """The last box that an answer names."""
    named = None
    for match in _FOUR.finditer(answer):
        named = match
    return None if named is None else read_box(named.groups())


def _whole(texts: Iterable[str]) -> list[int] | None:
    """Whole numbers from 0 to 1000."""
    numbers = []
    for text in texts:
        try:
            number = int(text)
        except ValueError:  # more digits than Python reads
            return None
        if not 0 <= number <= _SCALE:
            return None
        numbers.append(number)
    return numbers


# --- questions with a position --------------------------------------------------------------------------


def position(answer: str, expected: Box, says: Callable[[str], float], published: bool) -> float:
    """Half for what the object in the answer says, half for its box.

    Args:
        answer: holds an object with `answer` and `bbox`.
        expected: its right box.
        says: value of the text of `answer`.
        published: read as the published code does.
    """
    if published:
        parsed = published_object(answer)
        content = says(parsed["answer"]) if "answer" in parsed else 0.0
        box = _published_overlap(literal(parsed.get("bbox", "")), expected)
        return 0.5 * content + 0.5 * box
    found = read_object(answer)
    if found is None:
        return 0.0
    said = found.get("answer")
    content = says(str(said)) if isinstance(said, (str, int, float)) else 0.0
    named = placed(found)
    overlap = 0.0 if named is None else intersection_over_union(named, expected)
    return 0.5 * content + 0.5 * overlap


def placed(found: Mapping[Any, Any]) -> Box | None:
    """The box of an object that an answer holds."""
    place = found.get("bbox")
    return read_box(read_list(place) if isinstance(place, str) else place)


def published_object(text: str) -> dict[str, str]:
    """How OCRBench v2's code reads an object (`TEDS_metric.py`): a fence or the text,
    as JSON, as Python's literal, as `key: value` pairs. Values become texts; what is no object is empty."""
    text = next(fences(text), text.strip())
    try:
        data = parsed_json(text)
    except ValueError:
        data = literal(text)
        if not isinstance(data, dict):
            return read_pairs(text) if data is None else {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        return {}
    try:
        return {key.strip(): str(value).strip() for key, value in data.items()}
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return {}


# --- spotting -------------------------------------------------------------------------------------------


def spotting(answer: str, expected: Sequence[Word], unicode: UnicodeForm) -> float:
    """F-measure over the boxes of an answer and their texts, which are composed once they are read: what
    JSON escapes is composed no sooner."""
    said = dict.fromkeys((box, _text(compose(text, unicode))) for box, text in words_in(answer))
    known = dict.fromkeys((box, _text(text)) for box, text in expected)
    return _f(list(said), list(known))


def _f(said: Sequence[Word], known: Sequence[Word]) -> float:
    ignored = [box for box, text in known if text == _UNREADABLE]
    wanted = [(box, text) for box, text in known if text != _UNREADABLE]
    pairs = _right_pairs(said, wanted)
    alone = [box for number, (box, _) in enumerate(said) if number not in pairs]
    counted = len(pairs) + sum(not any(_lies_in(box, one) for one in ignored) for box in alone)
    both = counted + len(wanted)
    return 2 * len(pairs) / both if both else 1.0


def published_spotting(answer: str, expected: Sequence[Word]) -> float:
    """The same as published."""
    return _published_f(_published_words(answer), expected)


def _lies_in(box: Box, other: Box) -> bool:
    area = _area(box)
    return box == other or (area > 0 and _shared(box, other) / area > _OVERLAP)


def _right_pairs(said: Sequence[Word], wanted: Sequence[Word]) -> set[int]:
    """The boxes said that are right: as many pairs as can be, each box in one."""
    by_text: dict[str, list[int]] = {}
    for number, (_, text) in enumerate(said):
        by_text.setdefault(text.upper(), []).append(number)
    edges = [
        (row, number)
        for row, (box, text) in enumerate(wanted)
        for other in _allowed(text.upper())
        for number in by_text.get(other, ())
        if intersection_over_union(said[number][0], box) > _OVERLAP
    ]
    if not edges:
        return set()
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rows, columns = zip(*edges, strict=True)
    graph = csr_array(([1] * len(edges), (rows, columns)), shape=(len(wanted), len(said)))
    partners = maximum_bipartite_matching(graph, perm_type="column")
    return {number for number in partners.tolist() if number >= 0}


def _allowed(text: str) -> dict[str, None]:
    """Texts that match a reference: itself, or without a mark at either end, or at both."""
    first, last = text[:1], text[-1:]
    found = {text: None}
    if first and first in _MARKS:
        found[text[1:]] = None
    if last and last in _MARKS:
        found[text[:-1]] = None
        if first in _MARKS:
            found[text[1:-1]] = None
    return found


def _text(text: str) -> str:
    return text.replace("\n", "").strip().strip('"').strip("'")


def words_in(answer: str) -> list[Word]:
    """Entries that an answer lists; entries of another form are left out."""
    found = read_list(answer)
    if found and read_box(found[:4]) is not None:
        found = [found]  # one, without a list around it
    items: list[Sequence[Any]] = [one for one in found or () if isinstance(one, (list, tuple))]
    if not items:
        items = [match[1].split(",", 4) for match in _ITEM.finditer(answer)]
    boxes = ((read_box(item[:4]), item[4]) for item in items if len(item) >= 5)
    return [(box, _written(text)) for box, text in boxes if box is not None]


def _written(value: object) -> str:
    try:
        return str(value)
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return ""


def _published_words(answer: str) -> list[tuple[list[int], str]]:
    data = literal(answer)
    if data is None:
        items: list[Any] = [match[1].split(",", 4) for match in _ITEM.finditer(answer)]
    elif isinstance(data, (list, tuple)):
        items = [one for one in data if isinstance(one, (list, tuple))]
    else:
        items = []
    found: dict[tuple[Any, ...], tuple[list[int], str]] = {}
    for item in items:
        box = _whole(_written(one).strip() for one in item[:4]) if len(item) >= 5 else None
        if box is not None:
            text = _text(_written(item[4]))
            found.setdefault((*box, text), (box, text))
    boxes = found.values()
    return [(box, text) for box, text in boxes if box[0] < box[2] and box[1] < box[3]]


def _published_f(said: Sequence[tuple[list[int], str]], expected: Sequence[Word]) -> float:
    """The end-to-end protocol: references in order, each with the first free box of sufficient overlap."""
    known = [(box, _unquoted(text)) for box, text in expected]
    ignored = [box for box, text in known if text == _UNREADABLE]
    boxes = [
        (box, _unquoted(text))
        for box, text in said
        if not any(_shared(box, one) / _area(box) > _OVERLAP for one in ignored)
    ]
    wanted = [(box, text) for box, text in known if text != _UNREADABLE]
    taken: set[int] = set()
    right = 0
    for box, text in wanted:
        for number, (other, words) in enumerate(boxes):
            if number not in taken and _overlap(box, other) > _OVERLAP:
                taken.add(number)
                right += words.upper() in _allowed(text.upper())
                break
    return 2 * right / (len(wanted) + len(boxes)) if right else 0.0


def _unquoted(text: str) -> str:
    """A text as the competition's files hold it: in double quotes, with their escapes, or plain."""
    text = text.replace("\r", "").replace("\n", "")
    quoted = _QUOTED.fullmatch(text)
    return quoted[1].replace("\\\\", "\\").replace('\\"', '"') if quoted else text


def words_of(boxes: object, texts: object) -> list[Word] | None:
    """Boxes and texts of a reference, as many of one as of the other; None if they are not that."""
    if not isinstance(boxes, (list, tuple)) or not isinstance(texts, (list, tuple)):
        return None
    if len(boxes) != len(texts):
        return None
    found: list[Word] = []
    for box, text in zip(map(outline, boxes), texts, strict=True):
        if box is None or not isinstance(text, (str, int)):
            return None
        found.append((box, str(text)))
    return found
