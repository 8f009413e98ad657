"""Roles of a table's columns: derived from their values, proposed as a mapping. Pure; reads no file.

columns = look(records, finds)             each column: filled rows, number of values, an example
roles = propose(columns, len(records))     the columns of the image, the answer, the question, groups …
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcbench.data.sibling_files import SUFFIXES
from hpcbench.errors import Problem, UserError, unknown

Kind = Literal["text", "number", "flag", "object", "list", "bytes", "nothing"]

NAMES: Mapping[str, Sequence[str]] = {
    "id": ("id", "sample_id", "question_id", "questionid", "qid", "uid", "uuid", "key"),
    "images": (
        "images", "image", "image_path", "img", "img_path", "image_file", "image_name", "page", "pages",
        "scan", "file_name", "filename", "file", "file_path", "filepath", "path", "pdf", "document", "doc",
        "name", "файл", "изображение",
    ),
    "question": ("question", "questions", "query", "instruction", "prompt", "q", "вопрос", "问题"),
    "answers": (
        "references", "reference", "answers", "answer", "ground_truth", "groundtruth", "gt", "label",
        "labels", "class", "text", "target", "transcription", "transcript", "ocr_text", "ocr",
        "markdown", "expected", "class_name", "a", "response", "ответ", "ответы", "класс", "текст", "答案",
    ),
    "document": ("document", "document_id", "doc_id", "docid", "doc", "ucsf_document_id"),
    "split": ("split", "data_split", "subset", "fold"),
    "page": ("page", "page_no", "page_num", "page_nr", "page_number", "страница"),
    "class": (
        "label", "labels", "class", "class_name", "category", "doc_type", "document_type", "doc_class",
        "type", "класс",
    ),
    "text": ("text", "transcription", "transcript", "ocr_text", "ocr", "markdown", "текст"),
    "group": (
        "doc_type", "document_type", "doc_class", "type", "category", "language", "lang", "source", "domain",
        "difficulty", "quality", "question_type", "answer_type", "country", "comment", "comments", "note",
        "notes", "remark", "remarks", "width", "height", "dpi", "page_count", "num_pages", "n_pages",
        "annotator", "url", "language_code", "locale", "license", "licence", "size", "bbox", "boxes",
        "confidence",
        "bemerkung", "bemerkungen", "kommentar", "язык", "тип", "комментарий", "примечание", "备注",
    ),
}  # fmt: skip
"""Role of a column → its usual names, the likeliest first; in lower case, with `_` for other characters."""

PROMPTED = ("keys", "classes")
"""Columns that shipped prompts use by these names."""

MOST_VALUES = 200
"""Most distinct values of a column that are kept."""

MOST_GROUPS = 50
"""Most distinct values of a column that tables group by."""

LONG = 40
"""An answer whose average length exceeds this many characters is a text, not a word or phrase."""

LONGEST_GROUP = 80
"""Most characters of a group's value."""


@dataclass(slots=True)
class Column:
    """Properties of a column in the examined rows."""

    name: str
    """Its name in the table."""
    kind: Kind = "nothing"
    """Kind of most of its values; for lists of texts or numbers, the kind of the items."""
    filled: int = 0
    """Number of rows with a value."""
    distinct: int = 0
    """Number of distinct values."""
    values: list[str] = field(default_factory=list)
    """The first distinct values, as text."""
    length: int = 0
    """Average length of a value, characters."""
    longest: int = 0
    """Length of the longest value, characters."""
    lines: bool = False
    """Whether a value has several lines."""
    found: int = 0
    """Number of rows whose value names an existing page."""
    keys: list[str] = field(default_factory=list)
    """Keys of its objects, the most frequent first."""
    as_text: bool = False
    """Whether its objects are JSON stored as text."""
    below: str = ""
    """Key of the inner object to read, in Donut's nested objects; empty: the objects themselves."""

    @property
    def example(self) -> str:
        """One value on one line."""
        return " ".join(self.values[0].split()) if self.values else ""

    @property
    def scalar(self) -> bool:
        """Whether its values are texts, numbers or flags."""
        return self.kind in ("text", "number", "flag")


@dataclass(frozen=True, slots=True)
class RoleChoices:
    """Choices given by options; None: to be proposed."""

    answers: Sequence[str] | None = None
    """Columns of the answer."""
    question: str | None = None
    """A column, or a question for all samples."""
    task: str | None = None
    """Name of an ML task."""
    groups: Sequence[str] | None = None
    """Columns that tables group by."""


@dataclass(slots=True)
class Roles:
    """Roles of the columns."""

    images: str
    """Column of pages."""
    id: str = "#"
    """Column of ids; `#`: the row's number."""
    answers: list[str] = field(default_factory=list)
    """Columns of the answer; dots lead into an object."""
    task: str = ""
    """Suitable ML task."""
    question: str | None = None
    """Column of the question."""
    asked: str | None = None
    """A question that is the same for every sample."""
    prompted: list[str] = field(default_factory=list)
    """Further columns that prompts use by their names."""
    document: str | None = None
    """Column of the samples' document."""
    split: str | None = None
    """Column of the split."""
    page: str | None = None
    """Column of the page number, from 1, in the document that column `images` names."""
    groups: list[str] = field(default_factory=list)
    """Columns that tables group by."""
    metadata: list[str] = field(default_factory=list)
    """Columns kept as metadata of the samples, groups included."""
    left: dict[str, str] = field(default_factory=dict)
    """Column → why it is left out, or why it is no group."""
    sparse: dict[str, str] = field(default_factory=dict)
    """Column that would be an answer, but is mostly empty → how many rows have a value."""

    def of(self, name: str) -> str:
        """Roles of a column, for people."""
        above = [one.partition(".")[0] for one in self.answers]
        roles: Mapping[str, Sequence[str | None]] = {
            "image": [self.images], "id": [self.id], "answer": [*self.answers, *above],
            "question": [self.question], "in prompts": self.prompted, "document": [self.document],
            "split": [self.split], "page": [self.page], "group": self.groups,
        }  # fmt: skip
        found = [role for role, names in roles.items() if name in names]
        if not found and name in self.metadata:
            found = ["metadata"]
        why = f"({self.left[name]})" if name in self.left else ""
        return " ".join(filter(None, [", ".join(found) or "left out", why]))


def plain(name: str) -> str:
    """A column's name in the form of `NAMES`."""
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


# --- looking --------------------------------------------------------------------------------------------


def look(records: Iterable[Mapping[str, Any]], finds: Callable[[str], bool]) -> list[Column]:
    """The columns of a table, in its order.

    Args:
        records: its rows, or some of them.
        finds: whether a name is that of an existing page.
    """
    watched: dict[str, _Watched] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(name, str):
                watched.setdefault(name, _Watched(Column(name))).add(value, finds)
    return [one.done() for one in watched.values()]


class _Watched:
    """Collects a column's properties from its values; keeps their hashes and only a few values."""

    def __init__(self, column: Column) -> None:
        self._column, self._seen = column, set[int]()
        self._kinds, self._keys = Counter[Kind](), Counter[str]()
        self._lengths = 0

    def add(self, value: Any, finds: Callable[[str], bool]) -> None:
        column, first = self._column, _first(value)
        kind, inner = _kind(value, first)
        if kind == "nothing":
            return
        text = _text(value if kind in ("object", "list") else first)
        self._kinds[kind] += 1
        if kind == "bytes":  # bytes are not read here
            column.filled += 1
            column.values = ["(image)"]
            return
        if (mark := hash(_text(value))) not in self._seen:
            self._seen.add(mark)
            if len(column.values) < MOST_VALUES:
                column.values.append(text[:1000])
        column.filled += 1
        self._lengths += len(text)
        column.longest = max(column.longest, len(text))
        column.lines = column.lines or "\n" in text.strip()
        if kind == "object":
            if isinstance(inner.get(DONUT), Mapping):
                column.below, inner = DONUT, inner[DONUT]
            self._keys.update(str(key) for key in inner)
            column.as_text = column.as_text or isinstance(first, str)
        elif kind in ("text", "number"):
            column.found += finds(text)

    def done(self) -> Column:
        """The column, after all values were added."""
        column = self._column
        column.distinct = len(self._seen) or column.filled
        if self._kinds:
            column.kind = self._kinds.most_common(1)[0][0]
            column.length = self._lengths // column.filled
        column.keys = [key for key, _ in self._keys.most_common(MOST_VALUES)]
        return column


DONUT = "gt_parse"
"""Key of the object to read, in Donut and datasets for it."""


def _first(value: Any) -> Any:
    """The first non-empty item of a list; any other value as it is."""
    if isinstance(value, list | tuple):
        return next((one for one in value if one not in (None, "")), None)
    return value


def _kind(value: Any, first: Any) -> tuple[Kind, Mapping[str, Any]]:
    """The kind of a value; for an object, also the object."""
    if first is None or first != first or (isinstance(first, str) and not first.strip()):
        return "nothing", {}
    if isinstance(first, bytes):
        return "bytes", {}
    if isinstance(first, Mapping):
        if isinstance(value, list | tuple) and len(value) > 1:
            return "list", {}
        return ("bytes" if {"bytes", "path"} >= first.keys() else "object"), first
    if isinstance(first, list | tuple) or (
        isinstance(value, list | tuple) and not isinstance(first, str)
    ):
        return "list", {}
    if isinstance(first, bool):
        return "flag", {}
    if isinstance(first, int | float):
        return "number", {}
    if (
        isinstance(first, str)
        and first.lstrip().startswith("{")
        and isinstance(inner := _parsed(first), dict)
    ):
        return "object", inner
    return "text", {}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


# --- proposing ------------------------------------------------------------------------------------------


def propose(columns: Sequence[Column], rows: int, wish: RoleChoices | None = None) -> Roles | None:
    """Propose the roles of the columns; None: no column names or holds a page.

    Args:
        columns: from `look`.
        rows: number of examined rows.
        wish: choices given by options.

    Raises:
        UserError: a named column does not exist or is empty; the task has one answer and several are named.
    """
    wish, usable = wish or RoleChoices(), {one.name: one for one in columns if _usable(one)}
    images = _images(usable)
    if images is None:
        return None
    roles = Roles(
        images, left={one.name: _useless(one) for one in columns if one.name not in usable}
    )
    free = {name: one for name, one in usable.items() if name != images}
    roles.id = _id(usable, rows)
    free.pop(roles.id, None)
    if wish.answers is not None:
        roles.answers = [_said(name, usable, "answer") for name in wish.answers]
        free = {name: one for name, one in free.items() if name not in roles.answers}
    _take_question(roles, usable, free, wish)
    if any(value.lower().endswith((".pdf", ".tif", ".tiff")) for value in usable[images].values):
        roles.page = _taken(free, "page", lambda one: one.filled == rows and _counts(one))
    roles.document = _taken(free, "document", lambda one: one.scalar)
    roles.split = _taken(free, "split", lambda one: one.scalar and one.distinct <= 20)
    roles.prompted = [name for name in PROMPTED if free.pop(name, None) is not None]
    if wish.answers is None:
        roles.answers, roles.sparse = _answers(free, roles, rows)
    roles.task = wish.task or _task(usable, roles, rows)
    several = len(roles.answers) > 1 and roles.task in ("vqa", "ocr", "classification")
    if several and wish.answers is not None:
        what = f"ML task '{roles.task}' has one answer, but --answer names {len(roles.answers)} columns"
        raise UserError(Problem(what, remedy="set `--task kie`, or name one column"))
    if several:
        roles.answers = roles.answers[:1]
    used = {one.partition(".")[0] for one in roles.answers} | {*roles.answers}
    _take_rest(roles, {name: one for name, one in free.items() if name not in used}, rows, wish)
    roles.left |= roles.sparse
    return roles


def column_named(name: str, columns: Mapping[str, Column]) -> str | None:
    """The column of this name, exactly or by `plain` name, or a key in a column's objects; None: none."""
    if name in columns:
        return name
    like = [one for one in columns if plain(one) == plain(name) and plain(name)]
    if like:
        return like[0]
    above, dot, _ = name.partition(".")
    return name if dot and above in columns and columns[above].kind == "object" else None


def _said(name: str, columns: Mapping[str, Column], what: str) -> str:
    found = column_named(name, columns)
    if found is None:
        raise UserError(Problem(unknown(f"column for the {what}", name, columns)))
    return found


def _usable(column: Column) -> bool:
    return not _useless(column)


def _useless(column: Column) -> str:
    """Why a column is unusable; empty: it is usable."""
    if not column.name.strip():
        return "has no name"
    if not column.name.isprintable() or "{" in column.name or column.name == "#":
        return "has a name that a mapping cannot express"
    return "is empty" if column.kind == "nothing" else ""


def _rank(column: Column, role: str) -> int:
    """Index of a column's name among the usual names of a role; their number if it is none of them."""
    names = NAMES[role]
    name = plain(column.name)
    return names.index(name) if name in names else len(names)


def _is(column: Column, role: str) -> bool:
    return plain(column.name) in NAMES[role]


def _taken(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> str | None:
    """Take the likeliest column for a role out of the free ones."""
    found = sorted(
        (one for one in free.values() if _is(one, role) and fits(one)),
        key=lambda one: _rank(one, role),
    )
    if not found:
        return None
    free.pop(found[0].name)
    return found[0].name


def _counts(column: Column) -> bool:
    """Whether a column's values are whole numbers from 1."""
    return all(value.isascii() and value.isdigit() and int(value) > 0 for value in column.values)


def _images(columns: Mapping[str, Column]) -> str | None:
    held = [one for one in columns.values() if one.kind == "bytes"]
    if held:
        return min(held, key=lambda one: _rank(one, "images")).name
    found = [one for one in columns.values() if one.found]
    most = max((one.found / one.filled for one in found), default=0)
    likely = [one for one in found if one.found / one.filled >= most / 2]
    likely.sort(key=lambda one: (_rank(one, "images"), not _names_pages(one), -one.found))
    return likely[0].name if likely else None


def _id(columns: Mapping[str, Column], rows: int) -> str:
    unique = [
        one
        for one in columns.values()
        if _is(one, "id") and one.scalar and one.filled == one.distinct == rows
    ]
    return min(unique, key=lambda one: _rank(one, "id")).name if unique else "#"


def _take_question(
    roles: Roles, usable: Mapping[str, Column], free: dict[str, Column], wish: RoleChoices
) -> None:
    if wish.question is not None:
        column = column_named(wish.question, usable)
        roles.question, roles.asked = (column, None) if column else (None, wish.question)
        free.pop(column or "", None)
    elif wish.task in (None, "vqa"):
        roles.question = _taken(free, "question", lambda one: one.scalar)
        asking = [one.name for one in free.values() if one.name not in PROMPTED and _asks(one)]
        if roles.question is None and len(asking) == 1:
            roles.question = free.pop(asking[0]).name


def _asks(column: Column) -> bool:
    """Whether most values of a column are questions."""
    marked = sum(value.rstrip().endswith(("?", "？", "؟")) for value in column.values)
    return column.scalar and 2 * marked > len(column.values)


def _answers(
    free: Mapping[str, Column], roles: Roles, rows: int
) -> tuple[list[str], dict[str, str]]:
    """Columns of the answer, and columns that would be answers, but are mostly empty, each with that reason.

    The likeliest column by name, or else columns whose names are not those of groups. A mostly empty column
    is an answer only by its name, and only where no other column is one.
    """
    fit = [one for one in free.values() if one.scalar or one.kind == "object"]
    found = _fitting([one for one in fit if not _sparse(one, rows)], roles)
    named = [one for one in fit if _is(one, "answers")]
    found = found or _fitting([one for one in named if _sparse(one, rows)], roles)
    why = {
        name: f"mostly empty: {free[name].filled:,} of {rows:,} rows have a value"
        for name in _fitting([one for one in fit if _sparse(one, rows)], roles)
    }
    return found, why


def _sparse(column: Column, rows: int) -> bool:
    """Whether fewer than half of the rows have a value."""
    return 2 * column.filled < rows


def _fitting(fit: Sequence[Column], roles: Roles) -> list[str]:
    """Columns of the answer among these."""
    known = sorted(
        (one for one in fit if _is(one, "answers")), key=lambda one: _rank(one, "answers")
    )
    if known:
        return [known[0].name]
    objects = [one.name for one in fit if one.kind == "object" and not _is(one, "group")]
    if objects and roles.question is None:
        return objects[:1]
    rest = [one for one in fit if one.scalar and not _is(one, "group") and not _is(one, "id")]
    rest = [one for one in rest if not (_names_pages(one) or _is(one, "document"))]
    if rest:
        names = [one.name for one in rest]
        return names[:1] if roles.question is not None or roles.asked is not None else names
    classes = sorted((one for one in fit if _is(one, "class")), key=lambda one: _rank(one, "class"))
    return [one.name for one in classes[:1]]


def _task(columns: Mapping[str, Column], roles: Roles, rows: int) -> str:
    """The ML task that fits the columns; empty: there is no answer."""
    if not roles.answers:
        return ""
    column = columns.get(roles.answers[0])
    if len(roles.answers) > 1 or column is None or "keys" in roles.prompted:
        return "kie"
    if column.kind != "object" and (roles.question is not None or roles.asked is not None):
        return "vqa"
    if column.kind != "object" and "classes" in roles.prompted:
        return "classification"
    return task_of(column, rows)


def task_of(column: Column, rows: int) -> str:
    """The ML task that fits an answer without a question: objects, classes, text, or one field."""
    if column.kind == "object":
        return "kie"
    if _has_classes(column, rows):
        return "classification"
    if column.lines or column.length > LONG or _is(column, "answers"):
        return "ocr"
    return "kie"


def _has_classes(column: Column, rows: int) -> bool:
    """Whether a column's values are few, short and repeated; a class by its name needs fewer repetitions."""
    short = column.longest <= LONGEST_GROUP and not column.lines
    few = 1 < column.distinct <= MOST_GROUPS
    again = column.distinct * 3 <= rows or (
        _is(column, "class") and column.distinct * 2 <= max(rows, 6)
    )
    return short and few and again


def _take_rest(roles: Roles, rest: Mapping[str, Column], rows: int, wish: RoleChoices) -> None:
    groups = None
    if wish.groups is not None:
        groups = [_said(name, rest, "groups") for name in wish.groups]
    for name, one in rest.items():
        if not one.scalar:
            roles.left[name] = "contains images" if one.kind == "bytes" else f"contains {one.kind}s"
            continue
        if one.longest > 1000:
            roles.left[name] = "is long text"
            continue
        if _names_pages(one):
            roles.left[name] = "also names pages: a sample takes pages from one column only"
            continue
        roles.metadata.append(name)
        if name in groups if groups is not None else not (why := _no_group(one, rows)):
            roles.groups.append(name)
        elif groups is None and why != "":
            roles.left[name] = why


def _names_pages(column: Column) -> bool:
    """Whether a column's values are names of pages; numbers do not count: they are no certain names."""
    return column.found * 2 > column.filled and column.example.lower().endswith(SUFFIXES)


def _no_group(column: Column, rows: int) -> str:
    """Why tables should not group by a column; empty: they may."""
    if column.filled < rows:
        return "no group: some rows have no value"
    if column.distinct < 2:
        return "no group: every row has the same value"
    few = column.distinct * 2 <= rows or (column.distinct == 2 and rows > 2)
    if not few or column.distinct > MOST_GROUPS or column.longest > LONGEST_GROUP:
        return "no group: nearly every row has its own value"
    return ""
