"""Boxes as datasets annotate them: polygons in pixels, each with its text."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from hpcbench.metrics.ocrbench_boxes import outline
from hpcbench.schema.records import Boxes

Marks = Iterable[tuple[Any, str]]
"""Annotated polygons as x, y, x, y, …, each with its text or label."""


def boxes(marks: Marks, width: Any = None, height: Any = None) -> Boxes:
    """Boxes around polygons. Invalid polygons are left out: boxes are only for display.

    Args:
        marks: polygons of two or more points.
        width, height: size of the annotated image; if they are no numbers, the image's own size counts.
    """
    found = [(outline(points), label) for points, label in marks]
    kept = [(corners, label) for corners, label in found if corners is not None]
    return Boxes(
        tuple(corners for corners, _ in kept),
        tuple(label for _, label in kept),
        _size(width, height),
    )


def packed(found: Boxes) -> partial[Boxes]:
    """Boxes in a sixth of the memory, for keeping the boxes of a whole dataset until they are shown."""
    corners = array("f", (one for four in found.corners for one in four))
    return partial(_unpacked, corners, found.labels, found.size)


def _unpacked(
    corners: array[float], labels: tuple[str, ...], size: tuple[float, float] | None
) -> Boxes:
    some = iter(corners)
    return Boxes(tuple(zip(some, some, some, some, strict=True)), labels, size)


def quad(value: Any) -> list[Any]:
    """The polygon of an object `{x1, y1, … x4, y4}`."""
    if not isinstance(value, Mapping):
        return []
    return [value.get(f"{axis}{corner}") for corner in range(1, 5) for axis in "xy"]


def joined(polygons: Iterable[Any]) -> list[Any]:
    """One list of the points of several polygons, without invalid polygons."""
    return [one for points in polygons if outline(points) for one in points]


def _size(width: Any, height: Any) -> tuple[float, float] | None:
    box = outline([0, 0, width, height])
    if box is None or box[2] <= 0 or box[3] <= 0 or box[:2] != (0, 0):
        return None
    return box[2], box[3]
