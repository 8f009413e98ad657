"""The corpus of nasty answers: what models write, and what must come out of it.

A file is a list of groups. A group has what it is about, its language, its parser (`object`, `text`, `label`;
`label` where it has `labels`) with options, and its answers:

    read      [answer, value]: the value, without a mark
    marked    [answer, value, marks]: the value, with these marks in `repairs`
    refused   [answer, reason]: no value; words of the reason

A value other than the expected one without a mark, and any value where there must be none, is silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpcbench.parsers import DataParser
from hpcbench.schema.records import Reading

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One answer, and what must come out."""

    file: str
    """The file it is in."""
    about: str
    """Its group."""
    language: str
    """Language of the answer, as a code of two letters."""
    parser: str
    """object, text or label."""
    options: dict[str, Any]
    """Options of `DataParser`."""
    truncated: bool
    """It was cut at max_tokens."""
    answer: str
    """As the model wrote it."""
    value: object | None
    """The value that must result; None: no value."""
    marks: tuple[str, ...]
    """Marks that it must have."""
    reason: str
    """Words of the reason why nothing comes out; empty: something does."""

    def read(self) -> Reading:
        """Value that `DataParser` reads from the answer."""
        return DataParser(self.parser, **self.options).read(self.answer, self.truncated)  # type: ignore[arg-type]

    @property
    def kind(self) -> str:
        """read, marked or refused."""
        return "refused" if self.reason else "marked" if self.marks else "read"

    def verdict(self, reading: Reading) -> str:
        """right; otherwise (another mark or reason); refused, although it can be read; silently wrong."""
        if reading.value is None:
            if not self.reason:
                return "refused"
            return "right" if self.reason in reading.reason else "otherwise"
        if self.reason:
            return "silently wrong"
        if not _same(reading.value, self.value):
            return "otherwise" if reading.repairs else "silently wrong"
        as_meant = self.parser == "label" or set(reading.repairs) == set(self.marks)
        return "right" if as_meant else "otherwise"


def cases(*names: str) -> list[Case]:
    """All cases of some files of the corpus; none named: of all there are."""
    paths = [HERE / name for name in names] or sorted(HERE.glob("*.yaml"))
    return [
        case
        for path in paths
        for group in yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
        for case in _of_group(path.name, group)
    ]


def _of_group(file: str, group: dict[str, Any]) -> Iterator[Case]:
    parser = str(group.get("parser", "label"))
    options = dict(group.get("options", {}))
    if "labels" in group:
        options["labels"] = group["labels"]
    common = (
        file, str(group["about"]), str(group["language"]), parser, options, bool(group.get("truncated")),
    )  # fmt: skip
    for answer, value in group.get("read", ()):
        yield Case(*common, answer, value, (), "")
    for answer, value, marks in group.get("marked", ()):
        yield Case(*common, answer, value, tuple(marks), "")
    for answer, reason in group.get("refused", ()):
        yield Case(*common, answer, None, (), reason)


def _same(one: object, other: object) -> bool:
    """Equal, and of the same types: `1` is not `true`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other
