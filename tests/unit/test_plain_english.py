"""Docstrings, comments and pages use words that are read once.

These words were a dialect of this project. Each has a plain one: told → reported, nobody → no worker, anew →
again, begun → started, held against → compared with. Names in code may keep them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = (
    "told",
    "whoever",
    "somebody",
    "nobody",
    "anew",
    "begun",
    "lies there",
    "held against",
    "wished",
    "anyhow",
)
# In code a name may be one of them: in back quotes, as an argument (`told:`), or part of a file's name.
FOUND = re.compile(rf"(?<![\w`.\"'])({'|'.join(WORDS)})(?![\w`\"':]|\.\w)", re.IGNORECASE)
NAMES = {
    ("hpcbench/notify/outbox.py", "told"): "a state that is written to told.jsonl",
    ("hpcbench/remote/server.py", "told"): "a key of the protocol",
}


def texts(path: Path) -> Iterator[str]:
    """Docstrings, texts under fields, and comments of a module."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                yield str(one.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.mark.parametrize(
    "room", sorted({path.parent for path in (ROOT / "hpcbench").rglob("*.py")})
)
def test_docstrings_and_comments_do(room: Path) -> None:
    found = [
        f"{name}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for path in sorted(room.glob("*.py"))
        for name in [str(path.relative_to(ROOT))]
        if FOUND.search(path.read_text(encoding="utf-8"))
        for text in texts(path)
        for match in FOUND.finditer(text)
        if (name, match[0]) not in NAMES
    ]
    assert found == []


# The changelog may name words of earlier versions.
PAGES = [
    page
    for folder in (".", "docs", "docs/how-to")
    for page in sorted((ROOT / folder).glob("*.md"))
    if page.name != "CHANGELOG.md"
]

# A document is a scanned one. A YAML file that describes a part of a plan is a definition.
YAML_DOCUMENT = re.compile(
    r"(?:registry|YAML|model|dataset|prompt|metric|image|package|site|gate|task)(?:'s)? documents?\b"
    r"|(?:its|their|the user's) document(?! (?:and|is))|`\w+/` documents?\b",
    re.IGNORECASE,
)


def prose(page: Path) -> str:
    """A page without its code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"```.*?```|`[^`\n]*[^`/\n]`", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_do(page: Path) -> None:
    assert [match[0] for match in FOUND.finditer(prose(page))] == []


# `hpcbench schema` makes definitions.md.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "definitions.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_document_is_a_scanned_one(page: Path) -> None:
    assert [match[0] for match in YAML_DOCUMENT.finditer(prose(page))] == []
