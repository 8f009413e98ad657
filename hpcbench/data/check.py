"""A survey of a dataset before its first use: counts, duplicates, sizes, broken samples, a contact sheet."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from hpcbench.data.datasets import LOOK_AHEAD, bad_rows, placed
from hpcbench.data.pages import page_of
from hpcbench.data.pictures import decode, flat, guarded, name_of, picture_of
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.files.user import refuse_pipes
from hpcbench.plugins import DatasetIterator
from hpcbench.schema.records import Image, Sample
from hpcbench.visible import finalize

ON_SHEET = 40
"""Samples on the contact sheet, evenly spread over the dataset."""

MOST_VALUES = 12
"""Most values of a metadata name that are counted one by one."""

THUMBNAIL = (220, 220)
"""Largest width and height of a picture on the sheet, pixels."""

CAPTION = 80
"""Height of the three lines below a picture, with the space to the next row, pixels."""


@dataclass
class Survey:
    """Results of a survey."""

    samples: int = 0
    """Number of samples."""
    documents: int = 0
    """Number of documents of the samples: the clusters of the error bars."""
    images: int = 0
    """Number of images of all samples, pages included."""
    without_images: int = 0
    """Number of samples without images."""
    fields: dict[str, int] = field(default_factory=dict)
    """Field → number of samples with it."""
    metadata: dict[str, dict[str, int]] = field(default_factory=dict)
    """Metadata name → value → number of samples; names with many values have `(values)` → their number."""
    references: dict[str, int] = field(default_factory=dict)
    """Smallest, median and largest length of the first reference, characters."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Smallest, median and largest image, `WIDTHxHEIGHT`."""
    formats: dict[str, int] = field(default_factory=dict)
    """PNG, JPEG, … → number of images."""
    same_images: list[list[str]] = field(default_factory=list)
    """Ids of samples of different documents that share an image: the same bytes or the same page."""
    same_samples: list[list[str]] = field(default_factory=list)
    """Ids of samples with the same fields and the same images."""
    bad: list[dict[str, Any]] = field(default_factory=list)
    """Rows that give no sample and samples with unreadable images: message, file, line."""


@dataclass(frozen=True, slots=True)
class Card:
    """A sample on the contact sheet."""

    sample: Sample
    """The sample."""
    thumbnail: bytes | None
    """A small PNG of its first image; None if it has no readable image."""


def survey(
    iterator: DatasetIterator, progress: Callable[[int, int], None] = lambda done, count: None
) -> tuple[Survey, list[Card]]:
    """Survey every sample once.

    Args:
        iterator: the dataset.
        progress: called with the number of surveyed samples and the number of all samples.

    Returns:
        The survey, and cards for the contact sheet.
    """
    count = iterator.count()
    found, cards = Survey(samples=count), list[Card]()
    wanted = {count * place // min(count, ON_SHEET) for place in range(min(count, ON_SHEET))}
    documents: set[str] = set()
    values: dict[str, Counter[str]] = defaultdict(Counter)
    same = _Same()
    sizes: list[tuple[int, int]] = []
    lengths: list[int] = []
    formats: Counter[str] = Counter()
    broken: list[Problem] = []
    for index, (sample, seen) in enumerate(_seen(iterator, count)):
        documents.add(sample.document)
        found.images += len(sample.images)
        found.without_images += not sample.images
        for name in sample.fields:
            found.fields[str(name)] = found.fields.get(str(name), 0) + 1
        for name, value in sample.metadata.items():
            values[str(name)][str(value)] += 1
        lengths.append(len(_reference(sample)))
        sizes += seen.sizes
        formats.update(seen.formats)
        if seen.fault is None:
            same.add(sample, seen.keys)
        else:
            broken.append(placed(iterator, index, seen.fault))
        if index in wanted:
            cards.append(Card(sample, None if seen.fault else _thumbnail(sample)))
        progress(index + 1, count)
    found.documents = len(documents)
    found.metadata = {
        name: dict(counts.most_common())
        if len(counts) <= MOST_VALUES
        else {"(values)": len(counts)}
        for name, counts in values.items()
    }
    if lengths:
        found.references = {
            "least": min(lengths), "median": round(median(lengths)), "most": max(lengths),
        }  # fmt: skip
    if sizes:
        ordered = sorted(sizes, key=lambda size: size[0] * size[1])
        picked = {
            "smallest": ordered[0],
            "median": ordered[len(ordered) // 2],
            "largest": ordered[-1],
        }
        found.sizes = {name: f"{width}x{height}" for name, (width, height) in picked.items()}
    found.formats = dict(formats.most_common())
    found.same_images, found.same_samples = same.images(), same.samples()
    found.bad = [_bad_row(problem) for problem in (*bad_rows(iterator), *broken)]
    return found, cards


@dataclass
class _Seen:
    """Properties of a sample's images."""

    keys: list[str] = field(default_factory=list)
    """A key of each image; equal images have equal keys."""
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Sizes of images that are not pages of documents."""
    formats: list[str] = field(default_factory=list)
    fault: str | None = None
    """Why an image cannot be used; the images after it are then not read."""


def _seen(iterator: DatasetIterator, count: int) -> Iterator[tuple[Sample, _Seen]]:
    """Yield every sample with the properties of its images; several samples are decoded at once."""
    with ThreadPoolExecutor(8) as pool:
        for start in range(0, count, LOOK_AHEAD):
            some = [*map(_whole, iterator.iter(start, min(start + LOOK_AHEAD, count)))]
            yield from zip(some, pool.map(_look, some), strict=True)


def _whole(sample: Sample) -> Sample:
    """A sample with printable names and metadata."""
    known = {
        _text(str(name)): _text(value) if isinstance(value, str) else value
        for name, value in sample.metadata.items()
    }
    fields = {_text(str(name)): value for name, value in sample.fields.items()}
    name, document = _text(sample.id), _text(sample.document)
    return replace(sample, id=name, document=document, metadata=known, fields=fields)


def _look(sample: Sample) -> _Seen:
    """Decode a sample's images; document pages are only loaded: rendering takes a hundred times as long."""
    seen = _Seen()
    for image in sample.images:
        page = page_of(image)
        try:
            if page is not None:
                if (why := page.fault()) is not None:
                    raise UserError(why)
                seen.keys.append(page.key)
                continue
            with guarded("cannot be read"):
                data = _bytes(image)
            with picture_of(data) as picture:
                decode(picture)
                seen.sizes.append(picture.size)
                seen.formats.append(picture.format or "?")
            seen.keys.append(hashlib.sha256(data).hexdigest())
        except (OSError, HpcbenchError) as error:
            why = getattr(error, "strerror", None) or str(error)
            seen.fault = f"sample '{sample.id}': {name_of(image)}: {why}"
            break
    return seen


class _Same:
    """Finds samples of different documents that share an image, and equal samples."""

    def __init__(self) -> None:
        self._images: dict[bytes, dict[str, str]] = defaultdict(dict)
        self._samples: dict[bytes, list[str]] = defaultdict(list)

    def add(self, sample: Sample, keys: Sequence[str]) -> None:
        for key in set(keys):
            self._images[_short(key)].setdefault(sample.document, sample.id)
        fields = {str(name): value for name, value in sample.fields.items()}
        asked = json.dumps([keys, fields], sort_keys=True, default=str)
        self._samples[_short(asked)].append(sample.id)

    def images(self) -> list[list[str]]:
        """Groups of samples that share an image: the first of each document, each group once."""
        shared = (tuple(ids.values()) for ids in self._images.values() if len(ids) > 1)
        return [list(ids) for ids in dict.fromkeys(shared)]

    def samples(self) -> list[list[str]]:
        return [ids for ids in self._samples.values() if len(ids) > 1]


def _short(text: str) -> bytes:
    """A short key of a text: millions of keys take little memory."""
    return hashlib.sha256(text.encode()).digest()[:16]


def sheet_png(cards: Sequence[Card]) -> bytes:
    """The contact sheet as one PNG."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    columns, width, text = 5, THUMBNAIL[0] + 20, _font(12)
    pictures = [
        Pillow.open(io.BytesIO(card.thumbnail)) if card.thumbnail else None for card in cards
    ]
    tall = [picture.height if picture else 80 for picture in pictures]
    rows = [max(tall[first : first + columns]) for first in range(0, len(cards), columns)]
    size = (columns * width + 20, sum(rows) + len(rows) * CAPTION + 20)
    sheet = Pillow.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for place, (card, picture) in enumerate(zip(cards, pictures, strict=True)):
        row, column = divmod(place, columns)
        left, top = 20 + column * width, 20 + sum(rows[:row]) + row * CAPTION
        if picture is None:
            draw.rectangle((left, top, left + THUMBNAIL[0], top + rows[row]), outline="#b3261e")
            draw.text((left + 10, top + rows[row] // 2 - 8), "cannot be read", "#b3261e", font=text)
        else:
            sheet.paste(picture, (left, top))
            edge = (left - 1, top - 1, left + picture.width, top + picture.height)
            draw.rectangle(edge, outline="#ccc")  # the border of a white page
        lines = (
            (card.sample.id, "#111"),
            (_question(card.sample), "#555"),
            (_reference(card.sample), "#075"),
        )
        for number, (line, colour) in enumerate(lines):
            at = (left, top + rows[row] + 4 + 18 * number)
            draw.text(at, _cut(line, 34), colour, font=text)
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def sheet_html(name: str, found: Survey, cards: Sequence[Card]) -> str:
    """The survey and the contact sheet as one HTML page that loads no other files."""
    environment = Environment(
        loader=PackageLoader("hpcbench.data"),
        autoescape=select_autoescape(default=True),
        finalize=finalize,
    )
    shown = [
        {
            "id": card.sample.id,
            "document": card.sample.document,
            "question": _question(card.sample),
            "references": [_text(one) for one in card.sample.references],
            "metadata": {str(key): str(value) for key, value in card.sample.metadata.items()},
            "picture": base64.b64encode(card.thumbnail).decode() if card.thumbnail else None,
            "pages": len(card.sample.images),
        }
        for card in cards
    ]
    page = environment.get_template("survey.html")
    return page.render(name=name, found=asdict(found), cards=shown, on_sheet=len(shown))


def _bytes(image: Image) -> bytes:
    if isinstance(image, Path):
        refuse_pipes(image)
        return image.read_bytes()
    return image if isinstance(image, bytes) else image.read()


def _thumbnail(sample: Sample) -> bytes | None:
    from PIL import ImageOps

    if not sample.images:
        return None
    page = page_of(sample.images[0])
    try:
        image = sample.images[0] if page is None else page.alone()
        with picture_of(image) as picture, guarded("it is damaged"):
            small = flat(picture)
            small = (
                small.convert("L") if small.mode == "1" else small
            )  # black and white has no greys
            small.thumbnail(THUMBNAIL)
            small = ImageOps.exif_transpose(small).convert("RGB")
    except (OSError, HpcbenchError):
        return None
    out = io.BytesIO()
    small.save(out, "PNG")
    return out.getvalue()


def _font(size: int) -> Any:
    """A font with Cyrillic and Greek, which Pillow's own lacks."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), size
    )


def _bad_row(problem: Problem) -> dict[str, Any]:
    return {"message": _text(problem.message), "file": problem.file, "line": problem.line}


def _question(sample: Sample) -> str:
    about = ", ".join(map(str, sample.metadata.values()))
    return _text(str(sample.fields.get("question", "")) or about)


def _reference(sample: Sample) -> str:
    return _text(sample.references[0]) if sample.references else ""


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
