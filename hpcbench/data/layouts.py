"""Layouts in which datasets are shipped: presets of the table iterator, and pages with a file beside each.

| iterator | annotations |
|---|---|
| `v01` | `annotation.csv` of VLMHyperBench v0.1, columns separated by `;` |
| `docvqa` | DocVQA's JSON as its publisher ships it: `{"data": [{questionId, question, image, answers}]}` |
| `mp_docvqa` | MP-DocVQA's JSON: `{"data": [{questionId, question, doc_id, page_ids, answers}]}` |
| `ocrbench` | `OCRBench.json`: `[{dataset_name, type, question, image_path, answers}]` |
| `hf_disk` | a folder that `datasets.save_to_disk` of Hugging Face wrote |
| `coco` | COCO's JSON: images, annotations, categories |
| `pairs` | `page.png` with `page.txt` or `page.json`, beside it or in another folder |
| `folders` | a folder for each class, with the pages of this class |

A definition's `mapping`, `annotations` and `options` override the preset, key by key.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from hpcbench.data.annotations import ChangedRows, ListedRows, Record, Rows, value_of
from hpcbench.data.box_annotations import boxes, packed
from hpcbench.data.references import is_empty
from hpcbench.data.sibling_files import SUFFIXES, SiblingFiles
from hpcbench.data.table import TableDataset, is_outside
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Boxes, Sample


class V01(TableDataset):
    """VLMHyperBench v0.1: one row for each question; questions about one image form a document."""

    annotations = "annotation.csv"
    defaults: ClassVar[Mapping[str, Any]] = {"delimiter": ";"}
    preset = FieldMap(
        id="#", images="image_path", references="answer", document="image_path", split="split",
        fields={"question": "question"},
        metadata={"doc_class": "doc_class", "question_type": "question_type"},
    )  # fmt: skip


class DocVqa(TableDataset):
    """DocVQA, InfographicVQA and other datasets of the Robust Reading Competition."""

    annotations = "*.json"
    defaults: ClassVar[Mapping[str, Any]] = {"records": "data"}
    preset = FieldMap(
        id="questionId", images="image", references="answers", document="ucsf_document_id",
        split="data_split", fields={"question": "question"},
        metadata={"question_types": "question_types"},
    )  # fmt: skip


class MpDocVqa(DocVqa):
    """MP-DocVQA (Tito et al. 2023): questions about several pages, each an image below `images/`."""

    preset = FieldMap(
        id="questionId", images="images/{page_ids}.jpg", references="answers", document="doc_id",
        split="data_split", fields={"question": "question"},
        metadata={"answer_page_idx": "answer_page_idx"},
    )  # fmt: skip


class OcrBench(TableDataset):
    """OCRBench v1 as its publisher ships it; references of formulas are marked as formulas."""

    annotations = "OCRBench.json"
    preset = FieldMap(
        id="#", images="image_path", references="answers", document="image_path", split=None,
        fields={"question": "question"}, metadata={"dataset": "dataset_name", "question_type": "type"},
    )  # fmt: skip

    def _sample(self, index: int, record: Record, *, images: bool) -> Sample:
        sample = super()._sample(index, record, images=images)
        if "HME100k" not in (sample.metadata.get("dataset"), record.get("dataset_name")):
            return sample
        formulas = ({"answer": one, "kind": "formula"} for one in sample.references)
        return replace(sample, references=tuple(formulas))


class HfDisk(TableDataset):
    """Output of `datasets.save_to_disk`: one dataset, or a folder for each split. Labels become names."""

    annotations = "state.json"

    def __init__(self, spec: DatasetSpec) -> None:
        super().__init__(spec)
        self.spec, self.several = spec, self.folder / "dataset_dict.json"
        self.splits: list[str] = []
        if self.tree.has(self.several):
            self.splits = self.tree.parsed(self.several).get("splits", [])
            if self.split is not None:
                self._known()
                self.path, self.split = self.folder / self.split / "state.json", None
                self.splits = []

    def _known(self) -> None:
        """Check the split. Raises UserError: the definition names none of the dataset's splits."""
        if self.splits and self.split not in self.splits:
            known = ", ".join(self.splits)
            what = f"it has the splits {known}, and the dataset's definition names {self.split!r}"
            raise UserError(Problem(what, str(self.several), remedy="set `split: NAME`"))

    @cached_property
    def _files(self) -> list[Path]:
        self._known()
        state = self.tree.parsed(self.path)
        if state.get("_indices_data_files"):
            what = "a file of indices, which hpcbench does not read, selects some of its rows"
            remedy = "save it again: `dataset.flatten_indices().save_to_disk(…)`"
            raise UserError(Problem(what, str(self.path), remedy=remedy))
        files = [self.path.parent / one["filename"] for one in state["_data_files"]]
        gone = [Problem("no such file", str(path)) for path in files if not self.tree.has(path)]
        if gone:
            raise UserError(*gone)
        return files

    @cached_property
    def _rows(self) -> Rows:
        rows = super()._rows
        info = self.path.with_name("dataset_info.json")
        features = self.tree.parsed(info).get("features") or {}
        names = {
            column: feature["names"]
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
        return ChangedRows(rows, partial(_named, labels=names)) if names else rows

    def files(self) -> Iterable[Path]:
        """Arrow files and the files that describe them; of all splits, if the definition names none."""
        if self.splits:
            parts = (type(self)(replace(self.spec, split=name)).files() for name in self.splits)
            return sorted({self.several, *(path for part in parts for path in part)})
        described = [self.path, self.path.with_name("dataset_info.json")]
        return sorted({*super().files(), *described})


def _named(row: Record, labels: Mapping[str, list[str]]) -> Record:
    """A row with names instead of the numbers of classes."""
    numbers = {name: row[name] for name in labels if isinstance(row.get(name), int)}
    # -1 means no label, as in test splits
    return {**row, **{one: labels[one][at] if at >= 0 else None for one, at in numbers.items()}}


class _Made(TableDataset):
    """A table whose rows are built from other files."""

    def __init__(self, spec: DatasetSpec) -> None:
        super().__init__(spec)
        if spec.mapping != FieldMap():
            raise UserError("this iterator knows its own layout: leave 'mapping' out")
        self.strict = False  # records are built here and have keys of their own

    @cached_property
    def _rows(self) -> Rows:
        return ListedRows(self._make())

    def _make(self) -> Iterator[tuple[Path, int, Record | Problem]]:
        """Yield file, number in the file, and record in hpcbench's own form."""
        raise NotImplementedError


class Coco(_Made):
    """COCO's JSON: each image is a sample, its annotations are the reference.

    `label`: names of its categories, any of which is right; `caption`: its captions, any of which is right;
    `text`: text of all its boxes, one line for each, top to bottom; `fields`: name of the category → text, or
    a list of texts. Boxes are labelled with their text if it is the reference, else with their category.
    The file's name contains the split: `train` in `instances_train2017.json`.
    """

    annotations = "annotations/*.json"

    class Options(TableDataset.Options):
        """Options of the table iterator, and these."""

        reference: Literal["label", "caption", "text", "fields"] = "label"
        """Kind of the reference."""
        text: str | None = None
        """Key of an annotation's text; none: text, utf8_string, transcription or caption."""
        images: str = "images"
        """Folder of the images."""

    options: Options

    def _make(self) -> Iterator[tuple[Path, int, Record | Problem]]:
        seen: set[str] = set()
        for path in self._files:
            if self.split is not None and self.split not in _splits_of(path):
                continue
            data = self.tree.parsed(path)
            try:
                names = {one["id"]: one["name"] for one in data.get("categories", [])}
                of_image: dict[Any, list[Any]] = defaultdict(list)
                for one in data["annotations"]:
                    of_image[one["image_id"]].append(one)
                images = list(data["images"])
            except (KeyError, TypeError, AttributeError) as error:
                is_key = isinstance(error, KeyError)
                why = f"{error} is missing" if is_key else "it must have lists of objects"
                raise UserError(Problem(f"not a COCO file: {why}", str(path))) from error
            here: dict[Any, int] = {}
            for number, image in enumerate(images, 1):
                try:
                    name = self._in_folder(str(image["file_name"]))
                    first = here.setdefault(image["id"], number)
                    references = self._reference_of(of_image[image["id"]], names)
                except (KeyError, TypeError, IndexError) as error:
                    yield path, number, Problem(f"image {number} has no {error}", str(path), number)
                    continue
                what = ""
                if first != number:
                    what = f"images {first} and {number} have the same id, {image['id']}"
                elif is_empty(references):
                    what = f"image {name} has no annotation"
                if what:
                    yield path, number, Problem(what, str(path), number)
                    continue
                if not (is_outside(name) or self._has(name)):
                    name = f"{self.options.images}/{name}"
                sample_id = (
                    str(image["id"])
                    if str(image["id"]) not in seen
                    else f"{path.stem}/{image['id']}"
                )
                seen.add(sample_id)
                about = {key: image[key] for key in ("width", "height") if key in image}
                record = _record(sample_id, name, references, about)
                marked = {"boxes": self._boxes(image, of_image, names), "split": self.split}
                yield path, number, {**record, **marked}

    def _sample(self, index: int, record: Record, *, images: bool) -> Sample:
        return replace(super()._sample(index, record, images=images), boxes=record["boxes"])

    def _boxes(
        self, image: Mapping[str, Any], of_image: Mapping[Any, Any], names: Mapping[Any, str]
    ) -> partial[Boxes] | None:
        """Boxes of an image's annotations; None: there are none."""
        texts = self.options.reference == "text"
        known = {str(number): name for number, name in names.items()}
        marks = (
            (
                _polygon(one.get("bbox")),
                self._text(one) if texts else str(known.get(str(one.get("category_id")), "")),
            )
            for one in of_image[image["id"]]
        )
        found = boxes(marks, image.get("width"), image.get("height"))
        return packed(found) if found.corners else None

    def _has(self, name: str) -> bool:
        return self.tree.has(self.folder / name)

    def _reference_of(self, found: list[Any], names: Mapping[Any, str]) -> list[Any]:
        wanted = self.options.reference
        if wanted == "label":
            return list(dict.fromkeys(names[one["category_id"]] for one in found))
        if wanted == "caption":
            return [one["caption"] for one in found]
        ordered = sorted(
            found, key=lambda one: (one["bbox"][1], one["bbox"][0]) if "bbox" in one else (0, 0)
        )
        if wanted == "text":
            text = "\n".join(filter(None, map(self._text, ordered)))
            return [text] if text else []
        fields: dict[str, Any] = {}
        for one in ordered:
            fields.setdefault(names[one["category_id"]], []).append(self._text(one))
        return [{key: texts if len(texts) > 1 else texts[0] for key, texts in fields.items()}]

    def _text(self, annotation: Mapping[str, Any]) -> str:
        key = self.options.text
        keys = [key] if key else ["text", "utf8_string", "transcription", "caption"]
        found = (value_of(annotation, one) for one in keys)
        return next((str(one) for one in found if one is not None), "")


def _splits_of(path: Path) -> set[str]:
    """Splits that a file's name may mean: `instances_train2017` is of `train2017`, and of `train`."""
    parts = re.split(r"[_.\-]", path.stem)
    return {path.stem, *parts, *(one.rstrip("0123456789") for one in parts)} - {""}


def _polygon(bbox: Any) -> list[Any]:
    """Two corners (left, top, right, bottom) of a box given as left, top, width, height."""
    try:
        left, top, width, height = (float(one) for one in bbox)
    except (TypeError, ValueError):
        return []
    return [left, top, left + width, top + height]


class Pairs(_Made):
    """A page and its reference in a file of the same name: text in `.txt` or `.md`, an object in `.json`.

    `annotations` is a pattern, `**/*.txt`. The page is beside its reference, or in the folder `images`. There
    the page of `keys/a/1.txt` is `keys/a/1.png`; or `a/1.png` or `1.png`, if no other reference's path ends
    the same way. If the definition names a split, the first part of the reference's path is its split.
    """

    annotations = "**/*.txt"

    class Options(TableDataset.Options):
        """Options of the table iterator, and this."""

        images: str | None = None
        """Folder of the pages; none: beside their references."""

    options: Options

    def _make(self) -> Iterator[tuple[Path, int, Record | Problem]]:
        names = {path: path.relative_to(self.folder).with_suffix("") for path in self._files}
        ends = Counter(end for name in names.values() for end in _ends(name))
        for path, stem in names.items():
            name = stem.as_posix()
            if self.split is not None and name.split("/")[0] != self.split:
                continue
            page = self._page(stem, ends)
            if page is None:
                folder = self.options.images
                what = f"no page {Path(folder or '') / stem}.png, .jpg, .pdf, …"
                remedy = (
                    "put pages beside their references, or name their folder as the option `images`"
                )
                yield path, 1, Problem(what, str(path), remedy=remedy)
                continue
            image = page.relative_to(self.folder).as_posix()
            try:
                if path.suffix.lower() == ".json":
                    reference = self.tree.parsed(path)
                else:
                    reference = self.tree.text(path).strip()
            except UserError as error:
                yield path, 1, Problem(f"cannot be read: {error}", str(path))
                continue
            if is_empty(reference):
                yield path, 1, Problem("the file is empty", str(path))
                continue
            split = {"split": name.split("/")[0]} if "/" in name else {}
            yield path, 1, {**_record(name, image, [reference], {}), **split}

    def _page(self, name: Path, ends: Mapping[Path, int]) -> Path | None:
        """The page of a reference; if several fit, the page whose path shares the most parts with it."""
        folder = self.options.images
        if not folder:
            return self._siblings.find(self.folder / name)
        own = (end for end in _ends(name) if end == name or ends[end] == 1)
        found = (self._siblings.find(self.folder / folder / end) for end in own)
        return next(filter(None, found), None)

    @cached_property
    def _siblings(self) -> SiblingFiles:
        return SiblingFiles(self.tree)


class Folders(_Made):
    """Pages in a folder for each class: `receipt/1.png`; the folder's name is the reference.

    With `splits`, class folders are in a folder for each split: `test/receipt/1.png`. Pages in deeper folders
    belong to the class.
    """

    annotations = "**/*"

    class Options(TableDataset.Options):
        """Options of the table iterator, and these."""

        images: str = ""
        """Folder in which those of the classes are; empty: the dataset's."""
        splits: bool = False
        """Whether the folders in it are splits, and those of the classes are in them."""

    options: Options

    @cached_property
    def _files(self) -> list[Path]:
        found = [path for path in self.tree.files(self._top) if path.suffix.lower() in SUFFIXES]
        if not found:
            raise UserError(Problem("the folder has no pages", str(self._top)))
        return found

    @property
    def _top(self) -> Path:
        return self.folder / self.options.images

    def _make(self) -> Iterator[tuple[Path, int, Record | Problem]]:
        splits = self.options.splits
        for path in self._files:
            *folders, _ = path.relative_to(self._top).parts
            if len(folders) <= splits:
                yield path, 1, Problem("the page is not in the folder of a class", str(path))
                continue
            image = path.relative_to(self.folder).as_posix()
            record = _record(image, image, [folders[1] if splits else folders[0]], {})
            yield path, 1, {**record, **({"split": folders[0]} if splits else {})}


def _ends(name: Path) -> list[Path]:
    """A path, then the path without its first folder, without its first two folders, …"""
    return [Path(*name.parts[first:]) for first in range(len(name.parts))]


def _record(
    name: str, image: str, references: list[Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "id": name, "images": [image], "document": image, "references": references, "fields": {},
        "metadata": dict(metadata),
    }  # fmt: skip
