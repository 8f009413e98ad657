"""The form of a text table: its encoding, its delimiter, and the key of its list in JSON."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench.data.tree import Tree
from hpcbench.errors import Problem, UserError

HEAD = 1 << 20
"""Number of characters searched for a delimiter."""


def options_of(tree: Tree, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Options with which the table iterator reads a file, and notes on them for people.

    Raises:
        UserError: the file cannot be read, or its encoding is unknown.
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv", ".jsonl", ".json"):
        return {}, []
    data = tree.read(path)
    options: dict[str, Any] = {}
    encoding, sure = encoding_of(data, path)
    if encoding != "utf-8":
        options["encoding"] = encoding
    notes = [] if sure else [f"not UTF-8, read as {encoding}: check that the letters are right"]
    if suffix == ".json":
        options |= _records(data, encoding)
    if suffix in (".csv", ".tsv"):
        head = data[: 2 * HEAD].decode(encoding, "replace").removeprefix("\ufeff")[:HEAD]
        usual = "\t" if suffix == ".tsv" else ","
        found = delimiter_of(head, usual)
        options |= {"delimiter": found} if found != usual else {}
    return options, notes


def encoding_of(data: bytes, path: Path) -> tuple[str, bool]:
    """The encoding of a text, and whether it is certain.

    Raises:
        UserError: it is none of UTF-8, UTF-16 and the usual encodings of western Europe and of Cyrillic.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", True
    if 0 in (head := data[:HEAD]):  # only text in UTF-16 has such bytes
        return ("utf-16-le" if head[1::2].count(0) > head[0::2].count(0) else "utf-16-be"), True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        strange = data[error.start : error.start + HEAD]
    else:
        return "utf-8", True
    high = sum(byte > 0x7F for byte in strange)
    text = strange.decode("cp1251", "replace")
    if sum(len(run) for run in re.findall("[А-Яа-яЁё]{2,}", text)) * 10 > high * 6:
        return "cp1251", False
    runs = re.findall(rb"[\x80-\xff]+", strange)
    if high > 3 * len(runs):
        what = "neither UTF-8 nor another known encoding"
        raise UserError(Problem(what, str(path), remedy="save it as UTF-8"))
    return "cp1252", False


def delimiter_of(head: str, usual: str) -> str:
    """The delimiter of a CSV file: it gives the most rows of equal length, then the most columns."""
    if re.match(r"sep=.\r?\n", head, re.IGNORECASE):  # the reader uses it
        return usual
    best, found = (0.0, 0), usual
    for one in dict.fromkeys([usual, *",;\t|"]):
        lengths = list(itertools.islice(_lengths(head, one), 50))
        if not lengths or lengths[0] < 2:
            continue
        alike = sum(length == lengths[0] for length in lengths) / len(lengths)
        if (round(alike, 1), lengths[0]) > best:
            best, found = (round(alike, 1), lengths[0]), one
    return found


def _lengths(head: str, delimiter: str) -> Iterator[int]:
    """Yield the number of columns of the first rows; a last line that may be cut off is left out."""
    lines = head.splitlines(keepends=True)
    try:
        for cells in csv.reader(lines if len(head) < HEAD else lines[:-1], delimiter=delimiter):
            if any(map(str.strip, cells)):
                yield len(cells)
    except csv.Error:
        return


def _records(data: bytes, encoding: str) -> dict[str, Any]:
    """`records: KEY` for an object with a list of objects, at most one level further down."""
    try:
        whole = json.loads(data.decode(encoding).removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(whole, dict):
        return {}
    inner = {
        f"{above}.{key}": value
        for above, one in whole.items()
        if isinstance(one, dict)
        for key, value in one.items()
    }
    lists = {
        key: value
        for key, value in {**whole, **inner}.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    if lists:
        return {"records": max(lists, key=lambda key: len(lists[key]))}
    alike = len({type(one) for one in whole.values()}) == 1
    return {"records": "*"} if alike and isinstance(next(iter(whole.values())), dict | str) else {}
