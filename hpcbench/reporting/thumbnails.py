"""Small copies of samples' images for a page: text inside the page, within a budget, never an error."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.data.pictures import picture_of
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.worst_samples import samples_at
from hpcbench.schema.records import Image

SIDE = 560
"""Longest side, pixels: a reader can see the layout of a page, and read its larger letters."""

PAGES = 2
"""Most images shown of a sample."""

MOST_PIXELS = 150_000_000
"""Most pixels of an image that is opened: a larger image takes too long, or is an attack."""


class Thumbnail(NamedTuple):
    """A small copy of an image."""

    name: str
    """The image's name."""
    source: str
    """`data:image/…`."""
    width: int
    """Pixels."""
    height: int
    """Pixels."""


def thumbnails(
    tables: Mapping[str, Any], worst: int, budget_mb: float
) -> dict[tuple[str, str], list[Thumbnail]]:
    """Small copies of the images of the worst samples, where they are available.

    Args:
        tables: the report as data.
        worst: samples of each run task.
        budget_mb: most MiB of text; images beyond this are left out.

    Returns:
        (run task, sample) → its first images.
    """
    experiment = Experiment(Path(tables["path"]))
    try:
        resolved = {one.name: one for one in experiment.resolved.run_tasks}
    except (OSError, ValueError):
        return {}
    left = budget_mb * 2**20
    made: dict[tuple[str, int], list[Thumbnail]] = {}
    found: dict[tuple[str, str], list[Thumbnail]] = {}
    for name, some in tables["worst"].items():
        shown = [one for one in some[:worst] if one["images"]]
        if not shown or name not in resolved or left <= 0:
            continue
        dataset = resolved[name].dataset.model_dump_json() + json.dumps(experiment.chosen(name))
        missing = [one["place"] for one in shown if (dataset, one["place"]) not in made]
        for place, sample in samples_at(experiment, resolved[name], missing):
            copies = [_thumbnail(image) for image in sample.images[:PAGES]]
            made[dataset, place] = [one for one in copies if one is not None]
        for one in shown:
            pages = made.get((dataset, one["place"]), [])
            left -= sum(len(page.source) for page in pages)
            if left < 0:
                break
            named = zip(pages, one["images"], strict=False)
            found[name, one["sample"]] = [
                page._replace(name=Path(title).name) for page, title in named
            ]
    return found


def _thumbnail(image: Image) -> Thumbnail | None:
    try:
        with picture_of(image) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                return None
            picture.draft("RGB", (SIDE, SIDE))  # JPEG: decoded at a fraction of its size
            small = picture.convert("RGB")
            small.thumbnail((SIDE, SIDE))
        out = io.BytesIO()
        small.save(out, "WEBP", quality=45, method=4)
    except Exception:  # noqa: BLE001 - Pillow is missing, or the image is broken, gone or hostile
        return None
    text = base64.b64encode(out.getvalue()).decode("ascii")
    return Thumbnail("", f"data:image/webp;base64,{text}", small.width, small.height)
