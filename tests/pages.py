"""Code blocks of the documentation's pages, run as a reader types them, and compared with what they show.

A comment before a block says what the reader cannot see, such as `<!-- not run: REASON -->` or
`<!-- env: NAME=VALUE -->`; `<!-- tested: FILE -->` names the test that runs or compares it; a test may know
other notes.
A `text` block that begins with `$ COMMAND` shows what the command prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- ([\w ]+): (.*?) -->\n *)?```(sh|yaml|text)\n(.*?)```", re.DOTALL)

LEFT_OUT = "…"
"""In a `text` block: what differs from run to run. Alone on a line, any number of lines."""


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    note: str
    """Subject of the comment before it, or nothing."""
    value: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The path in the first line of a YAML block: the reader saves it there."""
        named = re.match(r"# (\S+\.yaml)\n", self.text)
        return named[1] if self.language == "yaml" and named else None


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return [Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def shown(block: Block) -> Iterator[tuple[str, Sequence[str]]]:
    """Commands of a `text` block, each with the lines that the page shows below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.rstrip("\n").split("\n") if output.strip() else []


def missing(lines: Sequence[str], printed: str) -> str | None:
    """The first line of a page that a command did not print at its place; None where all are right.

    Shown lines follow each other in the output as they do on the page. Names of experiments, paths of the
    reader's home and measured numbers may differ, words and counts may not.
    """
    output = printed.splitlines()
    place, anywhere = 0, True
    for line in lines:
        if line.strip() == LEFT_OUT:
            anywhere = True
            continue
        wanted = _pattern(line.rstrip())
        found = next((at for at in range(place, len(output)) if wanted.fullmatch(output[at])), None)
        if found is None or not (anywhere or found == place):
            return line
        place, anywhere = found + 1, False
    return None


# Name of an experiment, path of the reader's home, job, measured number, what a page leaves out, bar, space.
_VARIES = re.compile(
    r"\d{8}-\d{4}-(?P<name>[\w-]+)-\w{4}\b|(?P<path>/(?:home|lustre)/me\b[^\s:]*)"
    r"|(?P<job>(?<=\bg0 )\d+|(?<=finalise )\d+)|(?P<number>[+-]?\d+\.\d+)"
    r"|(?P<any>…)|(?P<bar>[━·]+)|(?P<space>\s+)"
)
_LIKE = {
    "path": r"\S+",
    "job": r"\d+",
    "number": r"[+-]?\d+\.\d+",
    "any": ".*",
    "bar": "[━·]+",
    "space": r"\s+",
}


def _pattern(line: str) -> re.Pattern[str]:
    """Pattern for a line of output of which a page shows an example."""
    made, end = "", 0
    for match in _VARIES.finditer(line):
        kind = str(match.lastgroup)
        like = rf"\d{{8}}-\d{{4}}-{match['name']}-\w{{4}}" if kind == "name" else _LIKE[kind]
        made, end = made + re.escape(line[end : match.start()]) + like, match.end()
    return re.compile(rf"{made}{re.escape(line[end:])}\s*")
