"""Secrets by reference: `${env:NAME}` and `${file:PATH}` in definitions, resolved only where they are used.

Every written file (`resolved.json`, the manifest, a report) has the reference, never the secret. Secrets
that this process revealed are remembered, so that `mask` can remove them from any text.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.files.user import read_text

REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")
MASK = "***"

Change = Callable[[str], str]
"""A change of a text."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)($|_)"
)
_SHORTEST = 4
"""Characters of the shortest masked secret: a shorter text would be removed from innocent words."""

_SHORTEST_PART = 8
"""Shortest line of a secret, or piece of its base64, that is masked by itself."""
_ESCAPED = re.compile("%[0-9A-F]{2}")

_adding = threading.Lock()
_revealed: set[str] = set()
_by_length: tuple[str, ...] = ()
"""The same, longest first."""


def reveal(text: str) -> str:
    """The text with every reference replaced by its secret.

    Raises:
        EnvironmentFault: the variable is not set, or the file cannot be read; names it, never its value.
    """

    def value(match: re.Match[str]) -> str:
        if why := _missing(match[1], match[2]):
            raise EnvironmentFault(f"{match[0]}: {why}", remedy=_remedy(match[1]))
        found = _read(match[1], match[2])
        remember(found)
        return found

    return REFERENCE.sub(value, text)


def reveal_all(value: Any) -> Any:
    """`reveal` in every text of plain data."""
    return in_texts(reveal, value)


def names(value: Any) -> Iterator[str]:
    """Variables of the environment that the texts of plain data refer to."""
    if isinstance(value, str):
        yield from (match[2] for match in REFERENCE.finditer(value) if match[1] == "env")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from names(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from names(inner)


def variables(value: Any) -> dict[str, str]:
    """The set variables that plain data refer to, for a process that resolves references itself."""
    found = {name: os.environ[name] for name in names(value) if os.environ.get(name)}
    for held in found.values():
        remember(held)
    return found


def remember(secret: str) -> None:
    """Make `mask` remove a secret that did not come from a reference."""
    global _by_length
    if len(secret) < _SHORTEST or secret in _revealed:
        return
    with _adding:
        _revealed.update(forms(secret))
        _by_length = tuple(sorted(_revealed, key=len, reverse=True))


def known() -> int:
    """Number of texts that `mask` removes; until it changes, `mask` does the same."""
    return len(_revealed)


def mask(text: str) -> str:
    """The text without any secret that this process revealed."""
    for secret in _by_length:
        text = text.replace(secret, MASK)
    return text


def forms(secret: str) -> Iterator[str]:
    """The forms in which programs print a secret, the plain one first.

    Quoted for a URL, JSON, HTML or Python, or twice for these; in one line, line by line, in base64, also in
    the middle of a longer text, and in hexadecimal.
    """
    # Imported here: every start of the command line imports this module.
    import base64

    raw = secret.encode("utf-8", "surrogateescape")
    yield secret
    for once in dict.fromkeys(quoted(secret)):
        yield once
        yield from quoted(once)
    yield raw.hex()
    yield raw.hex().upper()
    yield " ".join(secret.split())
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= _SHORTEST_PART)
    for before in range(3):  # its offset in a group of three bytes determines its base64 form
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        piece = encoded[(0, 2, 3)[before] : len(encoded) - (0, 4, 4)[(before + len(raw)) % 3]]
        if len(piece) >= _SHORTEST_PART:
            yield piece
            yield piece.replace("+", "-").replace("/", "_")


def quoted(text: str) -> Iterator[str]:
    """A text as URLs, JSON, HTML and Python quote it."""
    import html
    import json
    from urllib.parse import quote, quote_plus

    raw = text.encode("utf-8", "surrogateescape")
    for one in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield one
        yield _ESCAPED.sub(lambda found: found[0].lower(), one)  # .NET
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield html.escape(text)
    yield repr(text)[1:-1]


def mask_all(value: Any) -> Any:
    """`mask` in every text of plain data."""
    return in_texts(mask, value)


def in_texts(change: Change, value: Any) -> Any:
    """Plain data with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: in_texts(change, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_texts(change, inner) for inner in value]
    return value


def missing(text: str) -> Iterator[tuple[str, str]]:
    """Problems of a text's references on this machine: message and remedy."""
    for match in REFERENCE.finditer(text):
        if why := _missing(match[1], match[2]):
            yield f"{match[0]}: {why}", _remedy(match[1])


def written_out(name: str, value: str) -> bool:
    """Whether a variable with the name of a secret has its value in plain text."""
    return bool(_SECRET_NAME.search(name.upper())) and bool(value) and not REFERENCE.search(value)


def _missing(kind: str, name: str) -> str | None:
    if kind == "env":
        return None if os.environ.get(name) else "the variable is not set"
    try:
        return None if _read(kind, name) else "the file is empty"
    except UserError as error:
        return error.problems[0].message


def _read(kind: str, name: str) -> str:
    if kind == "env":
        return os.environ[name]
    return read_text(Path(name).expanduser()).strip()


def _remedy(kind: str) -> str:
    return (
        "export it before you submit"
        if kind == "env"
        else "check the path; only its owner should have access (mode 0600)"
    )
