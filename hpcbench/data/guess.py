"""What a folder holds: the iterator and the mapping that fit it, as a document to be looked over."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.beside import SUFFIXES
from hpcbench.data.rows import How, open_rows, value_of
from hpcbench.data.tree import Tree
from hpcbench.errors import HpcbenchError, Problem, UserError

KNOWN: dict[str, Sequence[str]] = {
    "id": ("id", "sample_id", "question_id", "questionId", "qid", "uid", "key"),
    "images": (
        "images", "image", "image_path", "img", "img_path", "file_name", "filename", "file", "path", "pdf",
    ),
    "references": (
        "references", "reference", "answers", "answer", "ground_truth", "gt", "label", "text", "target",
    ),
    "document": ("document", "document_id", "doc_id", "docId", "ucsf_document_id"),
    "split": ("split", "data_split"),
}  # fmt: skip
"""Part of a sample → names its column usually has, the likeliest first."""

FIELDS = ("question", "instruction", "query", "keys", "classes")
"""Columns that prompts use."""


@dataclass
class Guess:
    """A dataset's document, but for name and source."""

    iterator: str
    """Which iterator reads it."""
    why: str
    """What was seen, for people."""
    document: dict[str, Any] = field(default_factory=dict)
    """Further keys of the document."""


def guess(folder: Path) -> Guess:
    """The likeliest way to read a folder.

    Raises:
        UserError: nothing known is there.
    """
    if not folder.is_dir():
        raise UserError(Problem("no such folder", str(folder)))
    tree = Tree(folder)
    files = tree.files()
    names = {path.relative_to(folder).as_posix() for path in files}
    found = _by_layout(tree, folder, names) or _table(tree, folder, files) or _pairs(folder, names)
    if found is None:
        raise UserError(
            Problem(
                f"none of its {len(files)} files is a table or a page with its reference",
                str(folder),
                remedy="write a datasets/ document by hand, see docs/registries.md",
            )
        )
    return found


def _by_layout(tree: Tree, folder: Path, names: set[str]) -> Guess | None:
    tops = {name.split("/")[0] for name in names}
    if "dataset_dict.json" in names or {"state.json", "dataset_info.json"} <= names:
        splits = sorted(name.split("/")[0] for name in names if name.endswith("/state.json"))
        more = {"split": splits[0], "splits": splits} if splits else {}
        return Guess("hf_disk", "saved to disk by Hugging Face's datasets", more)
    if any(name.endswith("_data/annotations") or "_data/annotations/" in name for name in names):
        return Guess("funsd", "FUNSD's folders")
    if any("/entities/" in name for name in names) and any("/img/" in name for name in names):
        return Guess("sroie", "SROIE's folders")
    if any("/json/" in name for name in names) and any("/image/" in name for name in names):
        return Guess("cord", "CORD's folders")
    if "OmniDocBench.json" in names:
        return Guess("omnidocbench", "OmniDocBench.json")
    if "OCRBench.json" in names:
        return Guess("ocrbench", "OCRBench.json", {"fields": ["question"]})
    if "OCRBench_v2.json" in names:
        more = {"fields": ["question"], "group_by": ["language", "category", "question_type"]}
        return Guess("ocrbench_v2", "OCRBench_v2.json", more)
    if (
        "annotation.csv" in names
        and "image_path"
        in tree.text(folder / "annotation.csv", errors="replace").partition("\n")[0]
    ):
        more = {"fields": ["question"], "group_by": ["doc_class", "question_type"]}
        return Guess("v01", "annotation.csv of v0.1", more)
    for name in sorted(names):
        if name.endswith(".json") and len(tops) < 50:
            data = _head_of(tree, folder / name)
            if isinstance(data, dict) and {"images", "annotations"} <= data.keys():
                return Guess("coco", f"{name} is COCO's", {"annotations": name})
            if (
                isinstance(data, dict)
                and isinstance(data.get("data"), list)
                and "questionId" in str(data["data"][:1])
            ):
                more = {"annotations": name, "fields": ["question"]}
                if "page_ids" in str(data["data"][:1]):
                    return Guess("mp_docvqa", f"{name} is MP-DocVQA's", more)
                return Guess("docvqa", f"{name} is DocVQA's", more)
    return None


def _table(tree: Tree, folder: Path, files: Iterable[Path]) -> Guess | None:
    endings = (".parquet", ".jsonl", ".csv", ".tsv", ".json")
    tables = [path for path in files if path.suffix.lower() in endings]
    for path in sorted(tables, key=lambda path: (endings.index(path.suffix.lower()), str(path))):
        options = _options(tree, path)
        try:
            rows = open_rows(tree, [path], How(delimiter=options.get("delimiter"), keys=()))
            first = next(rows.at([0]))
        except (HpcbenchError, StopIteration, LookupError, OSError):
            continue
        mapping = {part: _first(first, names) for part, names in KNOWN.items()}
        if mapping["images"] is None or mapping["references"] is None:
            continue
        fields = [name for name in FIELDS if name in first]
        taken = {*mapping.values(), *fields}
        metadata = [
            name
            for name, value in first.items()
            if name not in taken and isinstance(value, (str, int))
        ]
        document: dict[str, Any] = {"annotations": _pattern(path, folder, tables)}
        own = {"id", "images", "references"} <= first.keys() and isinstance(first["images"], list)
        if not (own and path.suffix == ".jsonl"):
            document["mapping"] = {
                **mapping, "id": mapping["id"] or "#", "fields": {name: name for name in fields},
                "metadata": {name: name for name in metadata},
            }  # fmt: skip
        if fields:
            document["fields"] = fields
        if metadata and "mapping" in document:
            document["group_by"] = metadata
        if options:
            document["options"] = options
        return Guess(
            "table", f"{path.relative_to(folder)} has {', '.join(map(str, first))}", document
        )
    return None


def _pairs(folder: Path, names: set[str]) -> Guess | None:
    pages = {name.rpartition(".")[0] for name in names if name.lower().endswith(SUFFIXES)}
    for ending in (".txt", ".json", ".md"):
        stems = {name.removesuffix(ending) for name in names if name.endswith(ending)}
        if both := stems & pages:
            why = f"{len(both)} pages with a {ending} of the same name beside them"
            return Guess("pairs", why, {"annotations": f"**/*{ending}"})
    return None


def _pattern(path: Path, folder: Path, tables: Sequence[Path]) -> str:
    """One file, or a pattern over shards `NAME-00000-of-00007.parquet`."""
    name = path.relative_to(folder).as_posix()
    head, dash, _ = path.stem.partition("-")
    shards = [
        one for one in tables if one.parent == path.parent and one.stem.startswith(f"{head}-")
    ]
    return name.replace(path.name, f"{head}-*{path.suffix}") if dash and len(shards) > 1 else name


def _options(tree: Tree, path: Path) -> dict[str, Any]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        return {}
    head = tree.text(path, errors="replace").partition("\n")[0]
    try:
        delimiter = csv.Sniffer().sniff(head, ",;\t|").delimiter
    except csv.Error:
        return {}
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    return {"delimiter": delimiter} if delimiter != usual else {}


def _first(record: Any, names: Sequence[str]) -> str | None:
    return next((name for name in names if value_of(record, name) is not None), None)


def _head_of(tree: Tree, path: Path) -> Any:
    try:
        if path.exists() and path.stat().st_size > 1 << 28:  # a packed one is small
            return None
        return json.loads(tree.text(path))
    except (HpcbenchError, OSError, ValueError, RecursionError):
        return None
