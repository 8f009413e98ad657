"""Regions of an image that a dataset marks, or that a reference or an answer names.

Annotations of COCO, FUNSD, SROIE, CORD and OmniDocBench come with a sample (`Sample.boxes`). In references of
OCRBench v2 boxes are a part of the answer: text grounding, questions with a position, and text spotting, in
thousandths of the image (see `hpcbench.data.ocrbench`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from hpcbench.metrics.literals import read_object
from hpcbench.metrics.ocrbench_boxes import last_box, placed, read_box, words_in, words_of
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models.samples import Box, SampleImage
from hpcbench.schema.records import Sample

SCALE = (1000.0, 1000.0)

MOST = 500
"""Most boxes of a sample."""

_Corners = tuple[float, float, float, float]


def boxes_of(references: Iterable[Any], answer: str | None) -> tuple[Box, ...]:
    """Boxes of a sample, boxes of references first.

    Args:
        references: acceptable answers; objects as mappings.
        answer: the model's answer.
    """
    kinds: dict[str, None] = {}
    found: list[Box] = []
    for one in references:
        kind = one.get("kind") if isinstance(one, Mapping) else None
        if kind in ("grounding", "position", "spotting"):
            kinds[kind] = None
            found += _of_reference(one, str(kind))
    for kind in kinds:
        found += _of_answer(answer or "", kind)
    return tuple(found[:MOST])


def marked_on(sample: Sample | None, images: Sequence[SampleImage]) -> tuple[Box, ...]:
    """The dataset's boxes on the first image; empty if the image's size or the annotations are missing."""
    if sample is None or sample.boxes is None or not images:
        return ()
    try:
        found = sample.boxes()
    except Exception:  # noqa: BLE001 - foreign iterator, or missing files: the page shows the rest
        return ()
    size = found.size or (images[0].width, images[0].height)
    if not size[0] or not size[1]:
        return ()
    scale = (float(size[0]), float(size[1]))
    some = zip(found.corners[:MOST], found.labels, strict=False)
    return tuple(_box(corners, "reference", label, scale) for corners, label in some)


def _of_reference(one: Mapping[str, Any], kind: str) -> Iterator[Box]:
    if kind == "spotting":
        for corners, text in words_of(one.get("box"), one.get("answer")) or ():
            yield _box(corners, "reference", text)
        return
    box = read_box(one.get("box"))
    if box is not None:
        yield _box(box, "reference", str(one["answer"])[:200] if kind == "position" else "")


def _of_answer(answer: str, kind: str) -> Iterator[Box]:
    if kind == "spotting":
        for corners, text in words_in(answer):
            yield _box(corners, "answer", text)
        return
    if kind == "grounding":
        box = last_box(answer)
    else:
        said = read_object(answer)
        box = placed(said) if said is not None else None
    if box is not None:
        yield _box(box, "answer", "")


def _box(
    corners: _Corners,
    of: Literal["reference", "answer"],
    label: str,
    scale: tuple[float, float] = SCALE,
) -> Box:
    """A box from corners in any order, which may be outside the image."""
    xs, ys = (
        sorted(min(1.0, max(0.0, corners[place] / whole)) for place in places)
        for places, whole in zip(((0, 2), (1, 3)), scale, strict=True)
    )
    return Box(
        image=0, left=xs[0], top=ys[0], width=xs[1] - xs[0], height=ys[1] - ys[0],
        label=sound(label)[:200], of=of,
    )  # fmt: skip
