"""Messages, docstrings, comments, names, pages and definitions use words that are read once.

These words and constructions were a dialect of this project. Each has a plain form, for example: `told` →
reported, `nobody` → no worker, `anew` → again, `begun` → started, `held against` → compared with, "What a
cell holds" → "Content of a cell".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.syntax import parsed

WORDS = (
    "told", "whoever", "somebody", "nobody", "everybody", "anew", "begun", "lies there",
    "held against", "wished", "anyhow", "by and by", "looked at", "parted", "as they stand",
    "to be had", r"(?:say|says|know|knows) nothing of", "one's own", "as it came",
    r"stands(?! (?:for|in for|alone)\b)",
)  # fmt: skip
# In a text a name may be one of them: in back quotes, as an argument (`told:`), or part of a file's name.
FOUND = re.compile(rf"(?<![\w`.\"'-])({'|'.join(WORDS)})(?![\w`\"':]|\.\w)", re.IGNORECASE)
# The same words as parts of a name.
IN_NAME = re.compile(
    rf"(?:\b|_)(?:{'|'.join(word.replace(' ', '_').replace(chr(39), '') for word in WORDS[:-1])}"
    r"|stands(?!_(?:for|in_for|alone)))(?:\b|_)",
    re.IGNORECASE,
)
KEPT_NAMES = {
    ("hpcbench/environments/rented.py", "begun"): "a field of records on disk",
    ("hpcbench/experiment/access.py", "NOBODY"): "an account of every Unix",
    ("hpcbench/experiment/layout.py", "told_file"): "the file is told.jsonl",
}
NAMES = {
    ("hpcbench/notify/outbox.py", "told"): "a state that is written to told.jsonl",
    ("hpcbench/remote/server.py", "told"): "a key of the protocol",
    ("hpcbench/parsers/label_words.py", "nobody"): "a word that an answer may deny a label with",
    ("hpcbench/reporting/leaderboard.py", "told"): "a value in report.json: cannot be told apart",
    ("hpcbench/reporting/report_tables.py", "told"): "the same",
    ("hpcbench/reporting/sections/leaderboard.py", "told"): "the same",
    ("registries/schemas/report.json", "told"): "the same",
}

# A source without any of these has no fault: most files need not be parsed.
SUSPECT = re.compile(
    r'"""\s*(?:What|Who|Of|Are|Is)\s|[.:;|]\s+(?:What|Who|Of)\s+[a-z]|ocument'
    rf"|(?i:{FOUND.pattern}|{IN_NAME.pattern})"
)

# A docstring names its subject: a noun, or a verb in the imperative.
NO_SUBJECT = re.compile(r"(?:What|Who|Of|Are|Is) ")
# So does each sentence of a docstring or page, unless it is a question.
NO_SUBJECT_IN_TEXT = re.compile(
    r"(?:^|[.:;] |\| )((?:What|Who|Of) [a-z][^.?|\n]*)(?=[.|\n])", re.MULTILINE
)


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Docstrings, and texts under fields: statements, so that expressions need no look."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        yield str(tree.value.value)
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(tree, block, ()):
            yield from docstrings(one)


# Most files have none in a comment: they need not be split into tokens.
IN_COMMENT = re.compile(rf"#.*?(?:ocument|{FOUND.pattern})", re.IGNORECASE)


def comments(source: str) -> Iterator[str]:
    if not IN_COMMENT.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def messages(tree: ast.AST) -> Iterator[str]:
    """Texts of several words: messages, help, headings; docstrings too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def dialect(name: str, texts: Iterable[str]) -> list[str]:
    return [
        f"{name}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for text in texts
        for match in FOUND.finditer(text)
        if (name, match[0].lower()) not in NAMES
    ]


def names(tree: ast.AST) -> Iterator[str]:
    """Names that a file defines: functions, classes, arguments, variables, fields."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name


def without_subject(name: str, tree: ast.AST) -> list[str]:
    found = []
    for one in (" ".join(text.split()) for text in docstrings(tree)):
        found += [f"{name}: {one[:60]}"] if NO_SUBJECT.match(one) else []
        found += [f"{name}: {each[:60]}" for each in NO_SUBJECT_IN_TEXT.findall(f"{one}\n")]
    return found


def faults(path: Path, texts: Callable[[ast.AST], Iterable[str]]) -> list[str]:
    """Faults of a Python file: words of the dialect in these texts, comments and names; no subject."""
    source, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    if not SUSPECT.search(source):
        return []
    tree = parsed(source)
    found = without_subject(name, tree)
    if "ocument" in source:
        for text in filter(re.compile("ocument").search, [*texts(tree), *comments(source)]):
            found += [f"{name}: {one[0]}" for one in YAML_DOCUMENT.finditer(text)]
    if FOUND.search(source):
        found += dialect(name, [*texts(tree), *comments(source)])
    if IN_NAME.search(source):
        wrong = {one for one in names(tree) if IN_NAME.search(one)}
        found += [f"{name}: {one}" for one in sorted(wrong) if (name, one) not in KEPT_NAMES]
    return found


@pytest.mark.parametrize(
    "room", sorted({path.parent for path in (ROOT / "hpcbench").rglob("*.py")})
)
def test_the_package_does(room: Path) -> None:
    assert [fault for path in sorted(room.glob("*.py")) for fault in faults(path, messages)] == []


@pytest.mark.parametrize(
    "folder",
    [pytest.param("tests", marks=pytest.mark.long), "benchmarks", "examples", "recipes"],
)
def test_programs_beside_the_package_do(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [fault for path in paths for fault in faults(path, docstrings)] == []


# The changelog may name words of earlier versions.
PAGES = [
    page
    for folder in (".", "docs", "docs/how-to")
    for page in sorted((ROOT / folder).glob("*.md"))
    if page.name != "CHANGELOG.md"
]

# A document is one that was scanned or printed, and the unit of statistics. A YAML file is a definition, and
# what a model reads at once is a page.
YAML_DOCUMENT = re.compile(
    r"(?:registry|YAML|model|dataset|prompt|metric|image|package|site|gate|task)(?:'s)? documents?\b"
    r"|the user's document\b|`\w+/` documents?\b"
    r"|documents? of (?:v0|VLMHyperBench)|(?:any|older|v0\.2's) document(?::| names)|no document names"
    r"|documents (?:hold|name|describe|define) |(?:second|JSON|overlay|translated) documents?\b"
    r"|documents of our tests|\bdocuments a second|\bCPU a document",
    re.IGNORECASE,
)


@pytest.mark.long
def test_other_files_that_users_read_do() -> None:
    """Definitions, templates, the Makefile; comments of the portal's client."""
    files = [
        path
        for folder in ("registries", "examples", "recipes", "ci_templates", "slurm_templates")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".yaml", ".yml", ".md", ".json", ".j2", ".sh") and path.is_file()
    ]
    small = [path for path in [*files, ROOT / "Makefile"] if path.stat().st_size < 500_000]
    found = []
    for path in small:
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        found += dialect(name, [text])
        found += [f"{name}: {one[0]}" for one in YAML_DOCUMENT.finditer(text)]
    for path in sorted((ROOT / "portal/src").rglob("*.*")):
        if path.suffix in (".ts", ".tsx", ".css") and ".test." not in path.name:
            text = path.read_text(encoding="utf-8")
            notes = re.findall(r"/\*.*?\*/|(?<!:)//[^\n]*", text, re.DOTALL)
            found += dialect(str(path.relative_to(ROOT)), notes)
    assert found == []


def test_decisions_and_what_is_new_in_the_changelog_do() -> None:
    found = []
    for page in sorted((ROOT / "docs/decisions").glob("*.md")):
        found += dialect(str(page.relative_to(ROOT)), [prose(page)])
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    new = changelog.partition("## Unreleased\n")[2].partition("\n## ")[0]
    assert new
    new = re.sub(r"`[^`\n]*`", "", new)
    found += dialect("CHANGELOG.md", [new])
    assert found + [match[0] for match in YAML_DOCUMENT.finditer(new)] == []


def test_a_decision_is_read_in_paragraphs() -> None:
    for page in sorted((ROOT / "docs/decisions").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]} "), page.name
        assert max(len(part.split()) for part in text.split("\n\n")) <= 250, page.name


def prose(page: Path) -> str:
    """A page without its code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"```.*?```|`[^`\n]*[^`/\n]`", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_do(page: Path) -> None:
    name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    blocks = re.findall(r"```.*?```", text, re.DOTALL)
    assert dialect(name, [prose(page), *blocks]) == []
    sentences = [line for line in prose(page).splitlines() if not line.startswith("#")]
    assert NO_SUBJECT_IN_TEXT.findall("\n".join(sentences) + "\n") == []


# `hpcbench schema` makes definitions.md.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "definitions.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_document_is_a_scanned_one(page: Path) -> None:
    assert [match[0] for match in YAML_DOCUMENT.finditer(prose(page))] == []
