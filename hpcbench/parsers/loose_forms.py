"""Forms that answers use instead of JSON: tables in Markdown or HTML, and lines of `key: value`.

All values are texts; `typed` converts a text to its field's type in the schema, if it has that form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

Row = dict[str, str]

LONGEST = 1_000_000
"""Most characters of an answer that are searched for tables and lines."""

# --- tables ---------------------------------------------------------------------------------------------

_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_CELL_BREAK = re.compile(r"(?<!\\)\|")
_MARKS = re.compile(r"\*\*|__|`|<br\s*/?>", re.IGNORECASE)


def tables(text: str) -> list[list[list[str]]]:
    """All tables of an answer, each as rows of cells, the header first."""
    text = text[:LONGEST]
    found = _markdown_tables(text) if "|" in text else []
    return found + (_html_tables(text) if "<t" in text.lower() else [])


def _markdown_tables(text: str) -> list[list[list[str]]]:
    lines = text.splitlines()
    found: list[list[list[str]]] = []
    at = 1
    while at < len(lines):
        head, rule = lines[at - 1], lines[at]
        if "|" not in head or "-" not in rule or len(rule) > 2000 or not _RULE.fullmatch(rule):
            at += 1
            continue
        rows = [_cells(head)]
        at += 1
        while at < len(lines) and "|" in lines[at]:
            rows.append(_cells(lines[at]))
            at += 1
        found.append(rows)
        at += 1
    return found


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [plain(cell.replace("\\|", "|")) for cell in _CELL_BREAK.split(inner)]


def plain(words: str) -> str:
    """A cell or value without its Markdown marks."""
    return " ".join(_MARKS.sub(" ", words).split())


def _html_tables(text: str) -> list[list[list[str]]]:
    from lxml import etree, html

    printable = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text)
    try:
        root = html.document_fromstring(printable)
    except (etree.ParserError, ValueError):
        return []
    found = []
    for table in root.iter("table"):
        rows = [
            [" ".join(" ".join(cell.itertext()).split()) for cell in row.iterchildren("td", "th")]
            for row in table.iter("tr")
        ]
        rows = [row for row in rows if row]
        if rows:
            found.append(rows)
    return found


def rows_of(table: Sequence[Sequence[str]], known: Sequence[str] = ()) -> list[Row]:
    """A table's rows as objects, named by its header; empty cells are left out.

    With known keys, a header without any of them belongs to another table: no rows.
    """
    header, *rows = table
    if known and not {squeezed(name) for name in known} & {squeezed(name) for name in header}:
        return []
    return [
        {name: cell for name, cell in zip(header, row, strict=False) if name and cell}
        for row in rows
        if any(row)
    ]


_KEYS = frozenset(re.findall(r"\w+", """
    key keys field fields fieldname name attribute property parameter label element entity
    поле ключ название параметр атрибут реквизит feld feldname schlüssel bezeichnung merkmal attribut
    champ clé nom campo clave nombre chave nome chiave alan anahtar pole klucz
    字段 字段名 键 键名 名称 属性 フィールド キー 項目 الحقل المفتاح
    """))  # fmt: skip
_VALUES = frozenset(re.findall(r"\w+", """
    value values content contents значение содержимое содержание wert inhalt valeur contenu valor contenido
    conteúdo valore contenuto değer wartość 值 字段值 内容 値 القيمة
    """))  # fmt: skip
"""Headers' names for keys and values, `squeezed`."""


def pairs_of(table: Sequence[Sequence[str]], known: Sequence[str] = ()) -> tuple[Row, bool] | None:
    """A table of one object as that object, and whether a key repeats; None: another kind of table.

    With known keys, the table must have a header of known keys above one row, or two columns with a known key
    in the first. Without, the header of two columns must name keys and values, or be empty: any other table
    may list anything.
    """
    names = {squeezed(name) for name in known}
    heads = [squeezed(cell) for cell in table[0]]
    if len(heads) > 1 and names.issuperset(heads):
        if len(table) != 2 or len(table[1]) != len(heads):
            return None
        return _kept(zip(*table, strict=True), names)
    if any(len(row) != 2 for row in table):
        return None
    first, second = heads
    if names:
        if not any(squeezed(row[0]) in names for row in table):
            return None
    elif (first, second) != ("", "") and not (first in _KEYS and second in _VALUES):
        return None
    rows = table if first in names else table[1:]
    return _kept(((key.rstrip(" :"), value) for key, value in rows), names)


def _kept(pairs: Iterable[tuple[str, str]], names: Set[str]) -> tuple[Row, bool] | None:
    """Pairs with a key and a value as an object, the last of equal keys, and whether there are equal keys."""
    said = [(key, value) for key, value in pairs if key and value]
    keys = {squeezed(key) if names else key for key, _ in said}
    return (dict(said), len(keys) < len(said)) if said else None


# --- lines ----------------------------------------------------------------------------------------------

_FENCE_LINE = re.compile(r"\s*(?:```|~~~)[ \t]*[\w-]*\s*")
_KEY = r"[^\s:：|{}\[\]<>][^:：|{}\[\]<>\n]{0,79}?"
_LINE = re.compile(
    rf"(?P<mark>(?:[-*•+]|\d{{1,3}}[.)])\s+)?(?P<key>{_KEY})\s{{0,3}}[:：](?:\s+|$)(?P<value>.*)"
)
_ITEM = re.compile(r"(?:[-*•+]|\d{1,3}[.)])\s+(?P<value>\S.*)")
_WORDS = 6


def lines(text: str, known: Sequence[str] = ()) -> tuple[dict[str, Any], bool] | None:
    """`key: value` lines as an object, and whether a key repeats; None: the text has another form.

    Marks of lists and bold type around keys do not count. Indented lines belong to the key above them:
    `key: value` lines form an object, `- item` lines a list; one level, as models write them. With known
    keys, lines of other keys are prose; without, there must be at least two such lines, and all lines but
    the first and last must be of this kind.
    """
    written = [line.expandtabs(4).rstrip() for line in text[:LONGEST].splitlines() if line.strip()]
    body = [line for line in written if not _FENCE_LINE.fullmatch(line)]
    names = {squeezed(name) for name in known}
    found: dict[str, Any] = {}
    strangers: list[int] = []
    seen: set[str] = set()
    twice = False
    key, depth = None, 0
    for number, line in enumerate(body):
        indent = len(line) - len(line.lstrip())
        match = _LINE.fullmatch(_unmarked(line))
        if key is not None and indent > depth and _below(found, key, line, match):
            continue
        name = "" if match is None else plain(match["key"])
        stranger = not name or len(name.split()) > _WORDS or (names and squeezed(name) not in names)
        if stranger or match is None:
            strangers.append(number)
            key = None
            continue
        key, depth = name, indent
        found[key] = _unquoted(plain(match["value"]))
        twice |= (same := squeezed(key) if names else key) in seen
        seen.add(same)
    kept = {name: value for name, value in found.items() if value != ""}
    if names:
        return (kept, twice) if kept else None
    prose = [number for number in strangers if number not in (0, len(body) - 1)]
    return (kept, twice) if len(kept) > 1 and not prose else None


def _unmarked(line: str) -> str:
    return line.strip().replace("**", "").replace("__", "")


def _below(found: dict[str, Any], key: str, line: str, match: re.Match[str] | None) -> bool:
    """Add an indented line to its key, if the key's own line has no value."""
    value = found[key]
    item = _ITEM.fullmatch(_unmarked(line))
    if match is not None and not match["mark"] and (value == "" or isinstance(value, dict)):
        found[key] = value = value or {}
        value[plain(match["key"])] = _unquoted(plain(match["value"]))
    elif item is not None and (value == "" or isinstance(value, list)):
        found[key] = value = value or []
        value.append(_unquoted(plain(item["value"])))
    else:
        return False
    return True


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


# --- schemas --------------------------------------------------------------------------------------------


def squeezed(name: str) -> str:
    """A key in the form for comparison: letters and digits only, without case."""
    return "".join(char for char in name.casefold() if char.isalnum())


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,3})?")


def typed(value: str, wanted: frozenset[str]) -> object:
    """A text as one of the types of a JSON Schema, if it has the form of one; else unchanged."""
    if "string" in wanted or not wanted:
        return value
    if "null" in wanted and value.lower() in ("null", "none", "~", "-", "—"):
        return None
    if "boolean" in wanted and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if wanted & {"number", "integer"} and _NUMBER.fullmatch(value):
        if not set(value) & set(".eE"):
            return int(value)
        if "number" in wanted and math.isfinite(float(value)):
            return float(value)
    return value


def fitted(row: Mapping[str, Any], properties: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """A row with the schema's names for its keys, and its values in the schema's types."""
    named = {squeezed(name): name for name in properties}
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = named.get(squeezed(key), key)
        wanted = properties.get(name, frozenset())
        found[name] = typed(value, wanted) if isinstance(value, str) else value
    return found
