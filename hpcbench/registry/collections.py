"""Prompt collections in CSV files: our own columns, or those of v0.1."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

from hpcbench.errors import Problem, UserError
from hpcbench.schema.records import PromptEntry


def read_collection(path: Path) -> tuple[PromptEntry, ...]:
    """The entries of a CSV file; columns are parted by `;` or `,`.

    Raises:
        UserError: it cannot be read, or a row is no entry; at its line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Problem(f"cannot be read: {error}", str(path))) from error
    head = text.partition("\n")[0]
    delimiter = max(";,\t", key=head.count)
    reader = csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    entries, problems = [], list[Problem]()
    try:
        for row in reader:
            if None in row or None in row.values():
                problems.append(
                    Problem("it has not as many columns as the header", str(path), reader.line_num)
                )
                continue
            try:
                entries.append(_entry(row, reader.line_num))
            except KeyError as error:
                problems.append(
                    Problem(f"column {error} is missing or empty", str(path), reader.line_num)
                )
    except csv.Error as error:
        problems.append(Problem(f"not CSV: {error}", str(path), reader.line_num))
    if problems:
        raise UserError(*problems[:20])
    if not entries:
        raise UserError(Problem("no prompt", str(path)))
    return tuple(entries)


def _entry(row: Mapping[str, str], line: int) -> PromptEntry:
    if "doc_class_question_type" in row:  # a v0.1 collection: no templates, the rest are metrics
        kind, text = row["doc_class_question_type"], row.get("prompt") or ""
        if not kind or not text:
            raise KeyError("prompt" if kind else "doc_class_question_type")
        literal = "{{ " + json.dumps(text, ensure_ascii=False) + " }}"
        return PromptEntry(kind, literal, when={"doc_class_question_type": kind})
    own = ("id", "user", "system", "version")
    if not row.get("user"):
        raise KeyError("user")
    when = {name: value for name, value in row.items() if name not in own and value}
    return PromptEntry(
        row.get("id") or str(line), row["user"], row.get("system") or None, when,
        version=row.get("version") or "",
    )  # fmt: skip
