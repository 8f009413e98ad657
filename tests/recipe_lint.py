"""Faults that would make a recipe another image tomorrow, or one that must not be published."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hpcbench.environments.dockerfile import Instruction, instructions
from hpcbench.environments.recipes import Recipe
from hpcbench.errors import Problem
from hpcbench.secret import written_out

_PIPED = re.compile(
    r"\b(curl|wget)\b[^;&]*\|\s*(sudo\s+)?(\S*/)?(env\s+)?((ba|da|z)?sh|python3?)\b"
    r"|(\$|<)\(\s*(curl|wget)\b"
)
_LOGIN = re.compile(r"\w://[^\s/:@'\"]+:[^\s/@'\"]+@")
_PIP_INSTALL = re.compile(r"\bpip3?\s+install\b(.*)")
_REQUIREMENTS = re.compile(r"(?:\s-r|\s--requirement)[\s=]*(\S+)")
_PINNED = re.compile(
    r"([\w.-]+(\[[\w,.-]*\])?\s*==\s*[^\s*;]+|[\w.-]+ @ \S+)(\s|;).*--hash=sha\d+:"
)


def lint(recipe: Recipe) -> list[Problem]:
    """Everything about a recipe that is not as it should be, by line."""
    found: list[Problem] = []
    for one in instructions(recipe.path.read_text(encoding="utf-8"), str(recipe.path)):
        if one.keyword == "FROM":
            found += _base(recipe, one)
        elif one.keyword in ("ARG", "ENV"):
            found += _variables(recipe, one)
        elif one.keyword == "RUN":
            found += _run(recipe, one)
    return sorted(found, key=lambda one: (one.file != str(recipe.path), one.line or 0))


def _base(recipe: Recipe, one: Instruction) -> Iterator[Problem]:
    base, place = recipe.base, (str(recipe.path), one.line, 1)
    if base.digest is not None:
        return
    name = f"{base.host}/{base.repository}:{base.tag}"
    remedy = (
        f"`hpcbench images lock docker://{name}` asks its registry: write {name}@sha256:… there"
    )
    yield Problem(f"the base {name} is not pinned by its digest", *place, remedy=remedy)
    if base.tag == "latest":
        yield Problem("the base's tag is `latest`", *place, remedy="name a version")


def _variables(recipe: Recipe, one: Instruction) -> Iterator[Problem]:
    for word in one.words():
        name, _, value = word.plain.partition("=")
        if written_out(name, value) or _LOGIN.search(value):
            yield Problem(
                f"{one.keyword} {name} writes a secret into the image", str(recipe.path), one.line, 1,
                remedy="give it to the job, as `${env:NAME}` in a definition",
            )  # fmt: skip


def _run(recipe: Recipe, step: Instruction) -> Iterator[Problem]:
    place = (str(recipe.path), step.line, 1)
    if _PIPED.search(step.text):
        remedy = "COPY it, or check its SHA-256 before it is run"
        yield Problem("what is fetched is run unseen", *place, remedy=remedy)
    if _LOGIN.search(step.text):
        yield Problem("a URL with a password", *place, remedy="give pip its index by ~/.netrc")
    for command in re.split(r"&&|\|\||;|\|", " ".join(step.text.split())):
        if (match := _PIP_INSTALL.search(command)) is None:
            continue
        names = _REQUIREMENTS.findall(match[1])
        if not names:
            remedy = "put it into requirements.in, lock it, install by -r requirements.lock"
            yield Problem("pip installs what no lock names", *place, remedy=remedy)
        for name in (Path(name).name for name in names):
            copied = [one.path for one in recipe.files if one.path.name == name]
            if not copied:
                yield Problem(f"{name} is not copied", *place, remedy="COPY it before")
            for path in copied:
                yield from _lock(path)


def _lock(path: Path) -> Iterator[Problem]:
    """Entries without one version or without hashes."""
    entry, begin = "", 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not entry and (not line.strip() or line.lstrip().startswith(("#", "-"))):
            continue
        begin = begin if entry else number
        entry += line.rstrip("\\")
        if line.endswith("\\"):
            continue
        if _PINNED.match(entry) is None:
            name = re.split(r"[\s=<>~!;\[]", entry.strip(), maxsplit=1)[0]
            remedy = "uv pip compile --generate-hashes"
            yield Problem(f"{name} has no version and hash", str(path), begin, 1, remedy=remedy)
        entry = ""
