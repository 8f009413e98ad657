"""Prompt collections: CSV files with today's columns or those of v0.1, and JSON files of v0.2."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from hpcbench.errors import Problem, UserError
from hpcbench.files.user import not_json, read_json, read_text
from hpcbench.registry.upgrade import prompt_of
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import PromptEntry, PromptExample

ALIASES = {"template": "user", "system_prompt": "system"}
"""Other names of columns → today's, where today's is missing."""

_OWN = ("id", "user", "system", "version", "examples")

_EXAMPLES = TypeAdapter(tuple[PromptExample, ...], config=ConfigDict(extra="forbid"))


def read_collection(path: Path) -> tuple[PromptEntry, ...]:
    """The entries of a CSV file; `;`, `,` or tabs separate columns. Empty and duplicate rows are left out.


    Raises:
        UserError: it cannot be read, or a row is no entry; with its line.
    """
    reader = _reader(read_text(path))
    entries, problems, seen, rows = [], list[Problem](), dict[str, int](), set[tuple[str, ...]]()
    try:
        reader.fieldnames = _as_today(_columns(reader, path))
        for row in reader:
            line = reader.line_num
            if not any(row.values()):
                continue
            if None in row or None in row.values():
                problems.append(
                    Problem(
                        "the row has more or fewer columns than the header",
                        str(path),
                        line,
                        remedy="put a cell that contains the separator in quotes",
                    )  # fmt: skip
                )
                continue
            cells = tuple(row.values())
            if cells in rows:
                continue
            rows.add(cells)
            try:
                entry = _entry(row, line)
            except KeyError as error:
                problems.append(Problem(f"column {error} is missing or empty", str(path), line))
                continue
            except ValueError as error:
                problems.append(Problem(str(error), str(path), line))
                continue
            if entry.id not in seen:
                seen[entry.id] = line
                entries.append(entry)
            elif entry not in entries:
                what = f"two prompts have the id '{entry.id}'; the other one ends in line {seen[entry.id]}"
                problems.append(Problem(what, str(path), line, remedy="rename one of them"))
    except csv.Error as error:
        problems.append(Problem(f"not valid CSV: {error}", str(path), reader.line_num))
    if problems:
        raise UserError(*problems[:20])
    if not entries:
        raise UserError("the file contains no prompt", file=path)
    return tuple(entries)


def with_collection(prompt: Prompt) -> Prompt:
    """A prompt with the content of its `collection`, CSV or v0.2's JSON; its own texts come first.

    Raises:
        UserError: the file cannot be read, or has another form.
    """
    if prompt.collection is None:
        return prompt
    path = Path(prompt.collection)
    if path.suffix.lower() != ".json":
        return prompt.model_copy(update={"prompts": (*prompt.prompts, *read_collection(path))})
    content = read_json(path)
    if not isinstance(content, Mapping):
        raise UserError(Problem("not a JSON object", str(path), 1, 1))
    try:
        found = Prompt.model_validate({"name": prompt.name, **prompt_of(content)})
    except ValueError as error:
        raise UserError(Problem(str(error), str(path), 1, 1)) from error
    return prompt.model_copy(
        update={
            "user": prompt.user if prompt.user is not None else found.user,
            "system": prompt.system if prompt.system is not None else found.system,
            "prompts": (*prompt.prompts, *found.prompts),
        }
    )


def literal(text: str) -> str:
    """A template that prints exactly this text."""
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


def lines_of(text: str) -> io.StringIO:
    """A CSV's lines unchanged: `splitlines` would also split cells at U+2028 and vertical tabs."""
    return io.StringIO(text, newline="")


def _reader(text: str) -> csv.DictReader[str]:
    """A CSV's rows; the character that its header has most often of `;`, `,` and tab separates columns."""
    csv.field_size_limit(sys.maxsize)
    head = text.partition("\n")[0]
    return csv.DictReader(lines_of(text), delimiter=max(";,\t", key=head.count), strict=True)


def _columns(reader: csv.DictReader[str], path: Path) -> list[str]:
    """The names in the header.

    Raises:
        UserError: a column appears twice.
    """
    found = [name.strip() for name in reader.fieldnames or ()]
    twice = [name for name in dict.fromkeys(found) if name and found.count(name) > 1]
    if twice:
        raise UserError(
            Problem(f"column '{twice[0]}' occurs twice", str(path), 1, remedy="rename one of them")
        )
    return found


def _as_today(found: list[str]) -> list[str]:
    """Names of a collection's columns as they are today."""
    if "doc_class_question_type" in found:
        return found
    own = {other: name for other, name in ALIASES.items() if name not in found}
    return [own.get(name, name) for name in found]


def _entry(row: Mapping[str, str], line: int) -> PromptEntry:
    if "doc_class_question_type" in row:  # a v0.1 collection: no templates, the rest are metrics
        kind, text = row["doc_class_question_type"].strip(), row.get("prompt") or ""
        if not kind or not text:
            raise KeyError("prompt" if kind else "doc_class_question_type")
        return PromptEntry(kind, literal(text), when={"doc_class_question_type": kind})
    if not row.get("user"):
        raise KeyError("user")
    conditions = {name: value.strip() for name, value in row.items() if name not in _OWN}
    return PromptEntry(
        row.get("id") or str(line), row["user"], row.get("system") or None,
        {name: value for name, value in conditions.items() if value},
        _examples(row.get("examples") or ""), row.get("version") or "",
    )  # fmt: skip


def _examples(cell: str) -> tuple[PromptExample, ...]:
    """A cell with few-shot examples in JSON.

    Raises:
        ValueError: it is invalid, or names images: only the prompt's definition can name files to send.
    """
    if not cell.strip():
        return ()
    try:
        found = _EXAMPLES.validate_json(cell)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"examples: {place + ': ' if place else ''}{first['msg']}") from None
    if any(one.images for one in found):
        raise ValueError(
            "examples with images belong in the prompt's definition, not in a CSV file"
        )
    return found


def csv_rows(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line and columns of each row of a CSV file; `;`, `,` or tabs separate columns.

    Raises:
        UserError: a row does not fit the header, a column appears twice, or a quote never ends.
    """
    reader = _reader(text)
    try:
        reader.fieldnames = _columns(reader, path)
        for row in reader:
            if None in row or None in row.values():
                what = "the row has more or fewer columns than the header"
                remedy = "put a cell that contains the separator in quotes"
                raise UserError(Problem(what, str(path), reader.line_num, remedy=remedy))
            yield reader.line_num, row
    except csv.Error as error:
        place = (str(path), reader.line_num + 1)  # the row's first line
        raise UserError(Problem(f"not valid CSV: {error}", *place)) from error


def jsonl_rows(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line and object of each line of a JSONL file that is not blank.

    Raises:
        UserError: a line is no JSON object.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(not_json(error, path, number)) from error
        if not isinstance(row, dict):
            raise UserError(Problem("not a JSON object", str(path), number))
        yield number, row
