"""Detection of a folder's dataset: iterator and mapping that fit it, as a definition for people to review."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.column_roles import Column, RoleChoices, Roles, look, plain, propose, task_of
from hpcbench.data.sibling_files import SUFFIXES, Finder
from hpcbench.data.table import KEYS, TableDataset
from hpcbench.data.text_forms import options_of
from hpcbench.data.tree import Tree
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.field_map import FieldMap

TABLES = (".parquet", ".jsonl", ".csv", ".tsv", ".xlsx", ".json")
"""Suffixes of possible tables, the likeliest first."""

EXAMINED = 10_000
"""Most rows that a proposal is based on."""

TRIED = 50
"""Most tables to examine."""

SPLITS = ("test", "testing", "val", "valid", "validation", "dev", "eval", "train", "training")
"""Names of folders and files of splits; splits that a benchmark uses first come first."""

NO_CLASSES = (
    "image", "images", "img", "imgs", "page", "pages", "scan", "scans", "pdf", "pdfs", "file", "files",
    "data", "document", "documents", "docs", "pictures", "photos", "raw", "input", "inputs", *SPLITS,
)  # fmt: skip
"""Names of folders that are no classes."""

_BOXES = re.compile(r"(\d+( -?[\d.]+){4,}\s*)+")
"""YOLO's lines: a class and its box."""

SAMPLED = 300
"""Most files of references that a proposal is based on."""

MOST_KEYS = 60
"""Most keys of objects that a prompt can list."""


@dataclass
class Detected:
    """A dataset's definition without name and source."""

    iterator: str
    """Name of the iterator that reads it."""
    why: str
    """Evidence for the layout, for people."""
    definition: dict[str, Any] = field(default_factory=dict)
    """Further keys of the definition."""
    task: str = ""
    """Suitable ML task; empty: unknown."""
    prompt: str = ""
    """Suitable prompt; empty: the ML task's."""
    metrics: Sequence[str] = ()
    """Suitable metrics; empty: the ML task's."""
    notes: list[str] = field(default_factory=list)
    """Notes for people."""


@dataclass
class Table:
    """A table with pages beside it or in it, and the properties of its columns."""

    name: str
    """Its path in the folder, or a pattern over its files."""
    iterator: str
    """Name of its iterator: `table` or `hf_disk`."""
    options: dict[str, Any]
    """Options of the iterator."""
    columns: list[Column]
    """Its columns."""
    rows: int
    """Number of examined rows that could be read."""
    bad: int
    """Number of examined rows that could not be read."""
    direct: bool
    """Whether pages are at the paths in the table."""
    own: bool
    """Whether it is in hpcbench's own form."""
    splits: list[str] = field(default_factory=list)
    """Its splits."""
    notes: list[str] = field(default_factory=list)
    """Notes for people."""

    def propose(self, wish: RoleChoices | None = None) -> Roles | None:
        """Propose the roles of its columns."""
        return propose(self.columns, self.rows, wish)

    def detected(self, roles: Roles) -> Detected:
        """The definition for these roles."""
        task, by_name = roles.task, {one.name: one for one in self.columns}
        definition: dict[str, Any] = {"annotations": self.name} if self.iterator == "table" else {}
        if self.splits:  # its iterator takes one at a time
            definition |= {"split": self.splits[0], "splits": self.splits}
        options = dict(self.options)
        prompt, constants = self._asking(roles, by_name)
        if constants:
            options["constants"] = constants
        answer = by_name.get(roles.answers[0]) if roles.task != "kie" else None
        if answer is not None and answer.kind in ("number", "flag"):
            options["as_text"] = True
        if not self.own:
            definition["mapping"] = self._mapping(roles, by_name)
        fields = [*(["question"] if roles.question or roles.asked else []), *roles.prompted]
        fields += [name for name in constants if name not in fields]
        definition |= {"fields": fields} if fields else {}
        definition |= {"group_by": roles.groups} if roles.groups else {}
        definition |= {"options": options} if options else {}
        name = self.name or "the folder, saved by Hugging Face's datasets,"
        why = f"{name} has {', '.join(one.name for one in self.columns if one.name.strip())}"
        return Detected(self.iterator, why, definition, task, prompt, notes=[*self.notes])

    def _asking(self, roles: Roles, columns: Mapping[str, Column]) -> tuple[str, dict[str, Any]]:
        """The prompt, and the constant fields that it needs in every sample."""
        if roles.task == "kie" and "keys" in roles.prompted:
            return "kie_json", {}
        if roles.task == "kie" and (keys := keys_of(roles, columns)):
            return "kie_json", {"keys": listed(keys)}
        if roles.task == "classification" and roles.answers:
            column = columns.get(roles.answers[0])
            if "classes" in roles.prompted:
                return "classify", {}
            return "classify", {"classes": listed(_classes(column, roles.answers[0]))}
        if roles.task == "vqa" and roles.asked is not None:
            return "", {"question": roles.asked}
        if roles.task == "ocr" and roles.answers and "markdown" in plain(roles.answers[0]):
            return "ocr_markdown", {}
        return "", {}

    def _mapping(self, roles: Roles, columns: Mapping[str, Column]) -> dict[str, Any]:
        fields = {"question": roles.question} if roles.question else {}
        return {
            "id": roles.id,
            "images": f"{{{roles.images}}}#page={{{roles.page}}}" if roles.page else roles.images,
            "references": references_of(roles, columns),
            "document": roles.document,
            "split": roles.split,
            "fields": {**fields, **{name: name for name in roles.prompted}},
            "metadata": {name: name for name in roles.metadata},
        }


def _classes(column: Column | None, name: str) -> list[str]:
    if column is not None and column.distinct == len(column.values):
        return sorted(column.values)
    what = f"answer '{name}' has too many different values for classes"
    raise UserError(
        Problem(what, remedy="choose another `--task`, or another column for `--answer`")
    )


def references_of(roles: Roles, columns: Mapping[str, Column]) -> str | dict[str, str]:
    """The mapping's `references`: a column, or an object of several columns."""
    if roles.task != "kie":
        return roles.answers[0]
    if len(roles.answers) == 1:
        column = columns.get(roles.answers[0])
        if column is not None and column.kind == "object":
            place = ".".join(filter(None, [column.name, column.below]))
            inside = {key: f"{place}.{key}" for key in column.keys if "." not in key}
            return inside if column.as_text and not column.below else place
        if (
            column is None or "keys" in roles.prompted
        ):  # a key inside an object, or an object with its keys given
            return roles.answers[0]
    return dict(zip(_short(roles.answers), roles.answers, strict=True))


def keys_of(roles: Roles, columns: Mapping[str, Column]) -> list[str]:
    """Keys of the requested object; empty: too many, or unknown."""
    if len(roles.answers) > 1:
        return _short(roles.answers)
    column = columns.get(roles.answers[0]) if roles.answers else None
    if column is None:
        return []
    keys = column.keys if column.kind == "object" else [column.name]
    return keys if len(keys) <= MOST_KEYS else []


def listed(names: Sequence[str]) -> str | list[str]:
    """Names as a prompt shows them: separated by commas, or a list if a name contains a separator."""
    plain_names = not any({",", ";", "\n"} & set(name) for name in names)
    return ", ".join(names) if plain_names else list(names)


def _short(columns: Sequence[str]) -> list[str]:
    """Keys for columns: the last part of a name such as `fields.total`, if all last parts differ.

    A full stop in words, as in `Invoice No.` and `Inv. Date`, divides nothing.
    """
    last = [one.rpartition(".")[2] for one in columns]
    is_path = all(part and part == part.strip() for part in last)
    return last if is_path and len(set(last)) == len(last) else list(columns)


# --- a folder -------------------------------------------------------------------------------------------


def known_layout(folder: Path) -> Detected | None:
    """The definition for a publisher's layout; None: the folder has no such layout."""
    if not folder.is_dir():
        raise UserError(Problem("no such folder", str(folder)))
    tree = Tree(folder)
    names = {path.relative_to(folder).as_posix() for path in tree.files()}
    return _by_layout(tree, folder, names)


def _by_layout(tree: Tree, folder: Path, names: set[str]) -> Detected | None:
    asks: dict[str, Any] = {"fields": ["question"]}
    if any(name.endswith("_data/annotations") or "_data/annotations/" in name for name in names):
        return Detected("funsd", "FUNSD's folders", task="kie")
    if any("/entities/" in name for name in names) and any("/img/" in name for name in names):
        return Detected("sroie", "SROIE's folders", task="kie")
    if any("/json/" in name for name in names) and any("/image/" in name for name in names):
        return Detected("cord", "CORD's folders", task="kie")
    if "OmniDocBench.json" in names:
        return Detected(
            "omnidocbench", "OmniDocBench.json", {}, "ocr", "ocr_markdown", ["markdown_edit"]
        )
    if "OCRBench.json" in names:
        return Detected("ocrbench", "OCRBench.json", asks, "vqa", "vqa_plain", ["ocrbench"])
    if "OCRBench_v2.json" in names:
        more = {**asks, "group_by": ["language", "category", "question_type"]}
        return Detected(
            "ocrbench_v2", "OCRBench_v2.json", more, "vqa", "vqa_plain", ["ocrbench_v2"]
        )
    if (
        "annotation.csv" in names
        and "image_path"
        in tree.text(folder / "annotation.csv", errors="replace").partition("\n")[0]
    ):
        more = {**asks, "group_by": ["doc_class", "question_type"]}
        return Detected("v01", "annotation.csv of v0.1", more, "vqa")
    tops = {name.split("/")[0] for name in names}
    for name in sorted(names):
        if name.endswith(".json") and len(tops) < 50 and (found := _by_json(tree, folder, name)):
            return found
    return None


def _by_json(tree: Tree, folder: Path, name: str) -> Detected | None:
    data = _head_of(tree, folder / name)
    if isinstance(data, dict) and {"images", "annotations"} <= data.keys():
        return _coco(name, data)
    if (
        isinstance(data, dict)
        and isinstance(data.get("data"), list)
        and "questionId" in str(data["data"][:1])
    ):
        more = {"annotations": name, "fields": ["question"]}
        if "page_ids" in str(data["data"][:1]):
            return Detected("mp_docvqa", f"{name} is MP-DocVQA's", more, "vqa", metrics=["anls"])
        return Detected("docvqa", f"{name} is DocVQA's", more, "vqa", metrics=["anls"])
    return None


def _coco(name: str, data: Mapping[str, Any]) -> Detected:
    more: dict[str, Any] = {"annotations": name}
    categories = data.get("categories")
    named = [one["name"] for one in categories or () if isinstance(one, dict) and "name" in one]
    if not named:
        return Detected("coco", f"{name} is COCO's", more, "classification")
    more |= {
        "fields": ["classes"],
        "options": {"constants": {"classes": listed(list(map(str, named)))}},
    }
    return Detected("coco", f"{name} is COCO's", more, "classification", "classify")


# --- a table --------------------------------------------------------------------------------------------


def find_table(folder: Path, annotations: str = "") -> Table | None:
    """The table whose rows are samples: with pages and answers, or else with pages; None: there is none.

    Args:
        folder: folder of the table.
        annotations: its path in the folder; empty: the best table found.

    Raises:
        UserError: the named table cannot be read, or none of its rows names a page.
    """
    tree = Tree(folder)
    files, finder = tree.files(), Finder(tree)
    if annotations:
        return _named(tree, folder / annotations, finder)
    if (saved := _saved(tree, files, finder)) is not None:
        return saved
    tables = _candidates(files)
    best = without = None
    faults = list[HpcbenchError]()
    for path in tables[:TRIED]:
        try:
            table = _opened(tree, path, tables, finder)
            roles = table.propose()
        except (HpcbenchError, OSError) as error:
            faults += [error] if isinstance(error, HpcbenchError) and path.suffix != ".json" else []
            continue
        if roles is not None and roles.answers:
            table.notes += _others(path, tables, folder)
            return table
        best = best if best is not None or roles is None else table
        named = table.rows and any(map(_looks_like_page, table.columns))
        without = without if without is not None or not named else table
    best = best if best is not None else without
    if best is None and faults and not _reads_without(files):
        raise faults[0]
    return best


def _reads_without(files: Sequence[Path]) -> bool:
    """Whether pages may have references outside a table."""
    endings = {path.suffix.lower() for path in files}
    return bool(endings & {".txt", ".md", ".json"}) or len({path.parent for path in files}) > 2


def _named(tree: Tree, path: Path, finder: Finder) -> Table:
    if path.suffix.lower() not in (*TABLES, ".arrow"):
        what = f"annotations must end in one of {', '.join(TABLES)}"
        raise UserError(Problem(what, str(path), remedy="save the table as CSV"))
    table = _opened(tree, path, [path], finder)
    if not table.rows:
        raise UserError(Problem("it has no readable row", str(path)))
    return table


def _saved(tree: Tree, files: Sequence[Path], finder: Finder) -> Table | None:
    """The table that Hugging Face's datasets saved to disk."""
    top, names = tree.folder, {path.relative_to(tree.folder).as_posix() for path in files}
    if "dataset_dict.json" not in names and not {"state.json", "dataset_info.json"} <= names:
        return None
    splits = [
        name.split("/")[0]
        for name in names
        if name.count("/") == 1 and name.endswith("/state.json")
    ]
    splits.sort(key=lambda one: (SPLITS.index(one) if one in SPLITS else len(SPLITS), one))
    from hpcbench.data.layouts import HfDisk

    spec = DatasetSpec(top, "", splits[0] if splits else None, FieldMap(), {})
    table = _looked("", "hf_disk", {}, HfDisk(spec), finder, [])
    table.splits = splits
    return table


def _candidates(files: Sequence[Path]) -> list[Path]:
    """Possible tables, sorted: the likeliest form first, then the first splits, then the shortest paths."""
    pages = {path.with_suffix("") for path in files if path.suffix.lower() in SUFFIXES}
    found = [
        path
        for path in files
        if path.suffix.lower() in TABLES
        and not (path.suffix.lower() == ".json" and path.with_suffix("") in pages)
    ]

    def order(path: Path) -> tuple[int, int, int, str]:
        words = [*path.parent.parts[-1:], *plain(path.stem).split("_")]
        split = min((SPLITS.index(one) for one in words if one in SPLITS), default=0)
        return TABLES.index(path.suffix.lower()), split, len(path.parts), str(path)

    return sorted(found, key=order)


def _opened(tree: Tree, path: Path, tables: Sequence[Path], finder: Finder) -> Table:
    name, options = _pattern(path, tree.folder, tables), dict[str, Any]()
    options, notes = options_of(tree, path)
    iterator = TableDataset(DatasetSpec(tree.folder, name, None, FieldMap(), options))
    return _looked(name, "table", options, iterator, finder, notes)


def _looked(
    name: str,
    kind: str,
    options: dict[str, Any],
    iterator: TableDataset,
    finder: Finder,
    notes: list[str],
) -> Table:
    first = iterator.first(EXAMINED)
    records = [one for one in first if not isinstance(one, Problem)]
    if first and not records and isinstance(first[0], Problem):
        raise UserError(first[0])
    own = name.endswith(".jsonl") and _is_own(records)
    found = Counter[bool]()

    def finds(value: str) -> bool:
        file = value.partition("#page=")[0]
        path = iterator.tree.glob(file) and file if _is_pattern(file) else finder.find(file)
        if path:
            found[path == file] += 1
        return bool(path)

    columns = look((_flat(one) for one in records) if own else records, finds)
    table = Table(
        name,
        kind,
        options,
        columns,
        len(records),
        len(first) - len(records),
        True,
        own,
        notes=notes,
    )
    pages = max((one.found for one in columns), default=0)
    table.direct = found[True] >= pages
    if (lost := next((one for one in columns if _is_page_of(one, finder)), None)) is not None:
        what = f"its first line is not a header: it names the page '{lost.name}'"
        remedy = "add a header with names of columns, such as file and answer"
        raise UserError(Problem(what, str(iterator.path), 1, remedy=remedy))
    if not table.direct:
        options["find_images"] = "."
    return table


def _is_page_of(column: Column, finder: Finder) -> bool:
    """Whether a column's name is that of a page."""
    return column.name.lower().endswith(SUFFIXES) and finder.find(column.name) is not None


def _is_pattern(name: str) -> bool:
    return "*" in name and not name.startswith("/") and ".." not in name


def _is_own(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether records are in hpcbench's own form."""
    return bool(records) and all(
        {"id", "images", "references"} <= one.keys() <= KEYS and isinstance(one["images"], list)
        for one in records
    )


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of hpcbench's own form as a row: its fields and metadata are columns."""
    inner = (record.get("fields"), record.get("metadata"))
    more = {key: value for one in inner if isinstance(one, Mapping) for key, value in one.items()}
    return {**more, **{key: record[key] for key in record if key not in ("fields", "metadata")}}


def _others(path: Path, tables: Sequence[Path], folder: Path) -> list[str]:
    """A note on other tables, which are not read; empty if there are none."""
    head = path.stem.partition("-")[0]
    rest = [one for one in tables if one != path and one.stem.partition("-")[0] != head]
    if not rest:
        return []
    names = ", ".join(one.relative_to(folder).as_posix() for one in rest[:3])
    more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
    return [f"not read: {names}{more} (choose a table with --annotations FILE)"]


def _pattern(path: Path, folder: Path, tables: Sequence[Path]) -> str:
    """The path of one file, or a pattern over shards `NAME-00000-of-00007.parquet`."""
    name = path.relative_to(folder).as_posix()
    head, dash, _ = path.stem.partition("-")
    shards = [
        one for one in tables if one.parent == path.parent and one.stem.startswith(f"{head}-")
    ]
    return name.replace(path.name, f"{head}-*{path.suffix}") if dash and len(shards) > 1 else name


# --- without a table ------------------------------------------------------------------------------------


def beside_or_above(folder: Path) -> Detected:
    """The definition for pages whose references are files of the same name, or names of their folders.

    Raises:
        UserError: they are neither; the message names the files found and the missing ones.
    """
    if not folder.is_dir():
        raise UserError(Problem("no such folder", str(folder)))
    tree = Tree(folder)
    files = tree.files()
    found = _pairs(tree, files) or _folders(folder, files)
    if found is None:
        raise _nothing(folder, files)
    return found


def _pairs(tree: Tree, files: Sequence[Path]) -> Detected | None:
    pages = [path for path in files if path.suffix.lower() in SUFFIXES]
    stems = {path.with_suffix("") for path in pages}
    for ending in (".txt", ".json", ".md"):
        texts = [path for path in files if path.suffix == ending]
        if both := [path for path in texts if path.with_suffix("") in stems]:
            why = f"{len(both)} pages with a {ending} of the same name beside them"
            found = _of_texts(tree, both, ending, why, {"annotations": f"**/*{ending}"})
            if found is not None:
                return _with_rest(found, len(stems) - len(both))
        if texts and pages and (found := _apart(tree, texts, pages, ending)) is not None:
            return found
    return None


def _apart(
    tree: Tree, texts: Sequence[Path], pages: Sequence[Path], ending: str
) -> Detected | None:
    """The definition for references in one folder and pages in another; None: they do not match."""
    top = tree.folder
    here, there = (
        Path(os.path.commonpath([path.parent for path in some])) for some in (texts, pages)
    )
    named = {page.relative_to(there).with_suffix("") for page in pages}
    single = Counter(page.stem for page in pages)
    both = [
        path
        for path in texts
        if path.relative_to(here).with_suffix("") in named or single[path.stem] == 1
    ]
    if here == there or len(both) * 2 < len(texts):
        return None
    below = "" if here == top else f"{here.relative_to(top).as_posix()}/"
    more = {
        "annotations": f"{below}**/*{ending}",
        "options": {"images": there.relative_to(top).as_posix()},
    }
    why = f"{len(both)} {ending} in {below or '.'} with a page of the same name in {there.relative_to(top)}"
    found = _of_texts(tree, both, ending, why, more)
    return found and _with_rest(found, len(pages) - len(both))


def _with_rest(found: Detected, pages: int) -> Detected:
    if pages > 0:
        found.notes.append(f"left out: {pages} pages without a reference")
    return found


def _of_texts(
    tree: Tree, paths: Sequence[Path], ending: str, why: str, definition: dict[str, Any]
) -> Detected | None:
    """The definition for files of references, with their task; None: the files hold boxes, not text."""
    values = [
        value for path in paths[:SAMPLED] if (value := _reference(tree, path, ending)) is not None
    ]
    if values and all(isinstance(one, str) and _BOXES.fullmatch(one) for one in values):
        return None
    columns = look(({"text": one} for one in values), lambda name: False)
    column = columns[0] if columns else Column("text")
    task = "ocr" if ending == ".md" else task_of(column, len(values))
    options = dict(definition.pop("options", {}))
    prompt = "ocr_markdown" if ending == ".md" else ""
    if task == "kie" and column.keys and len(column.keys) <= MOST_KEYS:
        prompt, options["constants"] = "kie_json", {"keys": listed(column.keys)}
    if task == "classification":
        prompt, options["constants"] = "classify", {"classes": listed(sorted(column.values))}
    if "constants" in options:
        definition["fields"] = list(options["constants"])
    definition |= {"options": options} if options else {}
    return Detected("pairs", why, definition, task, prompt)


def _reference(tree: Tree, path: Path, ending: str) -> Any:
    try:
        text = tree.text(path)
        return json.loads(text) if ending == ".json" else text.strip()
    except (HpcbenchError, ValueError, RecursionError):
        return None


def _folders(folder: Path, files: Sequence[Path]) -> Detected | None:
    """The definition for class folders, perhaps below an image folder, perhaps in a folder for each split."""
    pages = [path for path in files if path.suffix.lower() in SUFFIXES]
    if not pages:
        return None
    top = Path(os.path.commonpath([path.parent for path in pages]))
    parts = [path.relative_to(top).parts for path in pages]
    splits = {one[0].lower() for one in parts if len(one) > 1}
    by_split = bool(splits) and splits <= set(SPLITS)
    classes = sorted({one[by_split] for one in parts if len(one) > by_split + 1})
    if len(classes) < 2 or len(classes) > 500 or all(map(_says_nothing, classes)):
        return None
    options: dict[str, Any] = (
        {} if top == folder else {"images": top.relative_to(folder).as_posix()}
    )
    options |= {"splits": True} if by_split else {}
    options["constants"] = {"classes": listed(classes)}
    definition: dict[str, Any] = {"fields": ["classes"], "options": options}
    if by_split:
        definition = {"splits": sorted({one[0] for one in parts if len(one) > 2}), **definition}
    why = f"{len(pages)} pages in {len(classes)} folders, used as classes: {', '.join(classes[:5])}"
    why += ", …" if len(classes) > 5 else ""
    found = Detected("folders", why, definition, "classification", "classify")
    if loose := sum(len(one) <= by_split + 1 for one in parts):
        found.notes.append(f"left out: {loose} pages outside the folders of classes")
    return found


def _says_nothing(name: str) -> bool:
    """Whether a folder's name is no class: a year, a date, a part number, or a usual word for pages."""
    return plain(name) in NO_CLASSES or not any(map(str.isalpha, name))


def _nothing(folder: Path, files: Sequence[Path]) -> UserError:
    pages = Counter(path.suffix.lower() for path in files if path.suffix.lower() in SUFFIXES)
    if not files:
        return UserError(Problem("the folder has no files", str(folder), remedy="check the path"))
    if not pages:
        what = f"none of its {len(files)} files is a table or a page"
        remedy = (
            f"convert pages to one of {', '.join(SUFFIXES)}, and put a table of answers beside them"
        )
        return UserError(Problem(what, str(folder), remedy=remedy))
    kinds = ", ".join(f"{count} {ending}" for ending, count in pages.most_common(4))
    what = f"{sum(pages.values())} pages ({kinds}), but no references for them"
    remedy = (
        "put a table beside them, for example answers.csv with a column `file` and a column for each answer, "
        "or name a table with --annotations FILE; or put the text of each page into a .txt file of its name"
    )
    return UserError(Problem(what, str(folder), remedy=remedy))


def why_no_table(folder: Path, table: Table) -> UserError:
    """The error for a table whose rows are no samples: they name no existing page."""
    known = ", ".join(one.name for one in table.columns)
    named = [
        one for one in table.columns if one.kind in ("text", "number") and _looks_like_page(one)
    ]
    if named:
        pages = f"pages such as {named[0].example[:80]!r}"
        what = f"column '{named[0].name}' names {pages}, but none of them exists"
        remedy = "put the pages into this folder, or below it"
        return UserError(Problem(what, str(folder / table.name), remedy=remedy))
    what = f"no column names a page that exists (columns: {known})"
    remedy = (
        "put the pages into this folder, and their names (folder, suffix optional) into one column"
    )
    return UserError(Problem(what, str(folder / table.name), remedy=remedy))


def _looks_like_page(column: Column) -> bool:
    return any(value.lower().endswith(SUFFIXES) for value in column.values)


def _head_of(tree: Tree, path: Path) -> Any:
    try:
        if path.exists() and path.stat().st_size > 1 << 28:  # a packed file is small
            return None
        return json.loads(tree.text(path))
    except (HpcbenchError, OSError, ValueError, RecursionError):
        return None
