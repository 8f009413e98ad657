"""What each column of a table is for: looked at as values, proposed as a mapping. Pure; reads no file.

columns = look(records, finds)             a column: how full, how many values, an example
roles = propose(columns, len(records))     which is the image, the answer, the question, a group …
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
        "notes", "remark", "width", "height", "dpi", "page_count", "num_pages", "n_pages", "annotator", "url",
        "language_code", "locale", "license", "licence", "size", "bbox", "boxes", "confidence",
        "язык", "тип",
    ),
}  # fmt: skip
"""What a column is for → names it usually has, the likeliest first; in small letters, `_` for all between."""

PROMPTED = ("keys", "classes")
"""Columns that shipped prompts use by these names."""

MOST_VALUES = 200
"""Different values of a column that are kept as they are."""

MOST_GROUPS = 50
"""Different values of a column that tables group by, at most."""

LONG = 40
"""Characters of a usual value from which an answer is a text, no word or phrase."""

LONGEST_GROUP = 80
"""Characters of a value of a group, at most."""


@dataclass(slots=True)
class Column:
    """What is known of a column from the rows that were looked at."""

    name: str
    """Its name in the table."""
    kind: Kind = "nothing"
    """What most of its values are; of a list of texts or numbers: what they are."""
    filled: int = 0
    """Rows with a value."""
    distinct: int = 0
    """Different values."""
    values: list[str] = field(default_factory=list)
    """Different values as text, the first of them."""
    length: int = 0
    """Characters of a usual value."""
    longest: int = 0
    """Characters of the longest."""
    lines: bool = False
    """Whether a value has several lines."""
    found: int = 0
    """Rows whose value is the name of a page that there is."""
    keys: list[str] = field(default_factory=list)
    """Keys of its objects, the most frequent first."""
    as_text: bool = False
    """Whether its objects are JSON kept as text."""
    below: str = ""
    """Key of the object that is meant, in Donut's objects of objects; empty: they are meant themselves."""

    @property
    def example(self) -> str:
        """One value on one line."""
        return " ".join(self.values[0].split()) if self.values else ""

    @property
    def scalar(self) -> bool:
        """Whether its values are texts, numbers or flags."""
        return self.kind in ("text", "number", "flag")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options give; None: to be proposed."""

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
    """What each column is for."""

    images: str
    """Column of pages."""
    id: str = "#"
    """Column of ids; `#`: the row's number."""
    answers: list[str] = field(default_factory=list)
    """Columns of the answer; one with dots goes down into an object."""
    task: str = ""
    """ML task that fits."""
    question: str | None = None
    """Column of the question."""
    asked: str | None = None
    """A question that is the same for every sample."""
    prompted: list[str] = field(default_factory=list)
    """Further columns that prompts use by their names."""
    document: str | None = None
    """Column of what samples belong to."""
    split: str | None = None
    """Column of the split."""
    page: str | None = None
    """Column of the page in the document that the other column names, from 1."""
    groups: list[str] = field(default_factory=list)
    """Columns that tables group by."""
    metadata: list[str] = field(default_factory=list)
    """Columns that are kept beside the samples, the groups among them."""
    left: dict[str, str] = field(default_factory=dict)
    """Column → why it is left out, or is no group."""

    def of(self, name: str) -> str:
        """What a column is for, for people."""
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
    """A column's name as `NAMES` writes it."""
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


# --- looking --------------------------------------------------------------------------------------------


def look(records: Iterable[Mapping[str, Any]], finds: Callable[[str], bool]) -> list[Column]:
    """The columns of a table, in its order.

    Args:
        records: its rows, or some of them.
        finds: whether a name is that of a page that there is.
    """
    watched: dict[str, _Watched] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(name, str):
                watched.setdefault(name, _Watched(Column(name))).add(value, finds)
    return [one.done() for one in watched.values()]


class _Watched:
    """A column while its values pass by; keeps hashes of them, and few as they are."""

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
        if kind == "bytes":  # they are not read here
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
        """The column, all values seen."""
        column = self._column
        column.distinct = len(self._seen) or column.filled
        if self._kinds:
            column.kind = self._kinds.most_common(1)[0][0]
            column.length = self._lengths // column.filled
        column.keys = [key for key, _ in self._keys.most_common(MOST_VALUES)]
        return column


DONUT = "gt_parse"
"""Key under which Donut and datasets made for it keep what is to be read."""


def _first(value: Any) -> Any:
    """The first of a list that is something; any other value as it is."""
    if isinstance(value, list | tuple):
        return next((one for one in value if one not in (None, "")), None)
    return value


def _kind(value: Any, first: Any) -> tuple[Kind, Mapping[str, Any]]:
    """What a value is; of an object also the object."""
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


def propose(columns: Sequence[Column], rows: int, wish: Wish | None = None) -> Roles | None:
    """What each column is for; None: no column names or holds a page.

    Args:
        columns: as `look` gives them.
        rows: rows that were looked at.
        wish: what the options give.

    Raises:
        UserError: a named column does not exist or is empty; the task has one answer and several are named.
    """
    wish, usable = wish or Wish(), {one.name: one for one in columns if _usable(one)}
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
        roles.answers = _answers(free, roles)
    roles.task = wish.task or _task(usable, roles, rows)
    several = len(roles.answers) > 1 and roles.task in ("vqa", "ocr", "classification")
    if several and wish.answers is not None:
        what = f"ML task '{roles.task}' has one answer, and {len(roles.answers)} columns are named"
        raise UserError(Problem(what, remedy="`--task kie`, or one column for `--answer`"))
    if several:
        roles.answers = roles.answers[:1]
    used = {one.partition(".")[0] for one in roles.answers} | {*roles.answers}
    _take_rest(roles, {name: one for name, one in free.items() if name not in used}, rows, wish)
    return roles


def column_named(name: str, columns: Mapping[str, Column]) -> str | None:
    """The column that is meant: so called, or but for capitals, or a key in its objects; None: none."""
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
    """Why nothing can be made of a column; empty: something can."""
    if not column.name.strip():
        return "has no name"
    if not column.name.isprintable() or "{" in column.name or column.name == "#":
        return "has a name that no mapping can say"
    return "is empty" if column.kind == "nothing" else ""


def _rank(column: Column, role: str) -> int:
    """Place of its name among those that are usual for a role; behind all: it is none of them."""
    names = NAMES[role]
    name = plain(column.name)
    return names.index(name) if name in names else len(names)


def _is(column: Column, role: str) -> bool:
    return plain(column.name) in NAMES[role]


def _taken(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> str | None:
    """The likeliest column for a role, no longer free."""
    found = sorted(
        (one for one in free.values() if _is(one, role) and fits(one)),
        key=lambda one: _rank(one, role),
    )
    if not found:
        return None
    free.pop(found[0].name)
    return found[0].name


def _counts(column: Column) -> bool:
    """Whether its values are whole numbers from 1."""
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
    roles: Roles, usable: Mapping[str, Column], free: dict[str, Column], wish: Wish
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
    """Whether it holds texts, most of them questions."""
    marked = sum(value.rstrip().endswith(("?", "？", "؟")) for value in column.values)
    return column.scalar and 2 * marked > len(column.values)


def _answers(free: Mapping[str, Column], roles: Roles) -> list[str]:
    """Columns of the answer: those that are called so, else whatever is no group by its name."""
    fit = [one for one in free.values() if one.scalar or one.kind == "object"]
    known = sorted(
        (one for one in fit if _is(one, "answers")), key=lambda one: _rank(one, "answers")
    )
    if known:
        return [known[0].name]
    objects = [one.name for one in fit if one.kind == "object" and not _is(one, "group")]
    if objects and roles.question is None:
        return objects[:1]
    rest = [one.name for one in fit if one.scalar and not _is(one, "group") and not _is(one, "id")]
    rest = [name for name in rest if not (_names_pages(free[name]) or _is(free[name], "document"))]
    if rest:
        return rest[:1] if roles.question is not None or roles.asked is not None else rest
    classes = sorted((one for one in fit if _is(one, "class")), key=lambda one: _rank(one, "class"))
    return [one.name for one in classes[:1]]


def _task(columns: Mapping[str, Column], roles: Roles, rows: int) -> str:
    """The ML task that the columns speak for; empty: there is no answer."""
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
    """The ML task that an answer without a question speaks for: objects, classes, text, or one field."""
    if column.kind == "object":
        return "kie"
    if _has_classes(column, rows):
        return "classification"
    if column.lines or column.length > LONG or _is(column, "answers"):
        return "ocr"
    return "kie"


def _has_classes(column: Column, rows: int) -> bool:
    """Whether its values are few and short, and come again and again; fewer times if it is called a class."""
    short = column.longest <= LONGEST_GROUP and not column.lines
    few = 1 < column.distinct <= MOST_GROUPS
    again = column.distinct * 3 <= rows or (
        _is(column, "class") and column.distinct * 2 <= max(rows, 6)
    )
    return short and few and again


def _take_rest(roles: Roles, rest: Mapping[str, Column], rows: int, wish: Wish) -> None:
    groups = None
    if wish.groups is not None:
        groups = [_said(name, rest, "groups") for name in wish.groups]
    for name, one in rest.items():
        if not one.scalar:
            roles.left[name] = "holds images" if one.kind == "bytes" else f"holds {one.kind}s"
            continue
        if one.longest > 1000:
            roles.left[name] = "is long text"
            continue
        if _names_pages(one):
            roles.left[name] = "names pages too: a sample takes those of one column"
            continue
        roles.metadata.append(name)
        if name in groups if groups is not None else not (why := _no_group(one, rows)):
            roles.groups.append(name)
        elif groups is None and why != "":
            roles.left[name] = why


def _names_pages(column: Column) -> bool:
    """Whether its values are names of pages; of numbers, which pages may be called, that is not certain."""
    return column.found * 2 > column.filled and column.example.lower().endswith(SUFFIXES)


def _no_group(column: Column, rows: int) -> str:
    """Why tables should not group by a column; empty: they may."""
    if column.filled < rows:
        return "no group: some rows have none"
    if column.distinct < 2:
        return "no group: the same in every row"
    few = column.distinct * 2 <= rows or (column.distinct == 2 and rows > 2)
    if not few or column.distinct > MOST_GROUPS or column.longest > LONGEST_GROUP:
        return "no group: nearly every row has its own"
    return ""
