"""Removes secrets from all output: known values, and text in the shape of a secret.

Known values are masked in their plain form and in the usual forms of programs (`secret.forms`): quoted for a
URL or for JSON, in base64 (also in the middle of a longer text), and line by line. Shapes are those of common
keys: Hugging Face, OpenAI, Google, Groq, GitHub, GitLab, NVIDIA, AWS, Slack, JSON Web Tokens, passwords in
URLs, `password=…` and the like in any of the usual forms of logs, `Bearer …`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from hpcbench import secret

MASK = b"***"

_SHORTEST = 4
"""Shortest masked value: a shorter one occurs in harmless words."""
_SHORTEST_PART = 8
"""Shortest line of a value, or piece of its base64, that is masked by itself."""
_LONGEST_SHAPE = 8192
"""Longest text in the shape of a secret, bytes."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|KEY|SECRET|PASS|PASSWD|CREDENTIALS?)S?(_|$)"
    r"|(TOKEN|APIKEY|SECRET|PASSWORD|PASSPHRASE)S?$"
)
_PLAIN = frozenset({"true", "false", "none", "null", "auto"})

# Each starts with literal letters: only then Python's `re` is fast, and a log's reader must not block the
# event loop. If a pattern has a group, only the group is the secret.
_SHAPES = [
    re.compile(pattern)
    for pattern in (
        rb"hf_[A-Za-z0-9]{16,}",
        rb"sk-(?<!\w...)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}",
        rb"gh[pousr]_[A-Za-z0-9]{30,}",
        rb"github_pat_[A-Za-z0-9_]{30,}",
        rb"nvapi-[A-Za-z0-9_-]{20,}",
        rb"AIza[A-Za-z0-9_-]{35}",
        rb"gsk_[A-Za-z0-9]{30,}",
        rb"glpat-[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]+)*",
        rb"xox[a-z]-(?=[A-Za-z-]*\d)[A-Za-z0-9-]{10,}",
        rb"AKIA[A-Z0-9]{16}",
        rb"ASIA[A-Z0-9]{16}",
        rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        rb"://([^\s/:@\"']{16,})@",
        rb"://[^\s/:@\"']*:(?!\d{1,5}[/?#\s])([^\s@\"']+)@",  # not a port, followed by a path
    )
]


_SIGNS = r"\\{0,3}[\"']?\s{0,4}[=:]\s{0,4}"
"""Separator of a name and its value; in JSON within JSON the quotes are escaped."""
_VALUE = r"(?:[^\s\"',&;\\]|\\(?![\\\"']))"
"""A character of a value without quotes."""
_NO_SECRET = r"(?!(?:none|null|true|false)(?![\w-])|\*\*\*|\$\{|<)"
"""Values that are no secret: nothing, a reference, a placeholder."""
_SCHEMES = r"(?:(?:bearer|basic|digest|token|apikey)\s+)?"


def _named(word: str, *before: str, least: int = 3, value: str = _VALUE) -> re.Pattern[bytes]:
    """The value after `word = `, in lower case; with `before`, only after `BEFORE_word = `.

    Args:
        word: the name, or its end.
        before: the start of the name.
        least: length of the shortest value without quotes.
        value: a character of the value.
    """
    names = [f"{first}{between}{word}" for first in before for between in ("", "_", "-")]
    behind = "(?:" + "|".join(f"(?<={name})" for name in names) + ")" if before else ""
    forms = [rf"\\{{0,3}}[\"']?{_SCHEMES}{_NO_SECRET}({value}{{{least},512}})"]
    if value is _VALUE:
        forms = [*(_quoted(quote) for quote in "\"'"), *forms]
    return re.compile(f"{word}{behind}{_SIGNS}(?:{'|'.join(forms)})".encode())


def _quoted(quote: str) -> str:
    return rf"{quote}{_SCHEMES}{_NO_SECRET}((?:[^{quote}\\\n]|\\.){{1,512}}){quote}"


_NAMED = [
    _named(
        "token", "api", "access", "auth", "hf", "hub", "session", "security", "refresh", least=4
    ),
    _named("key", "api", "secret", "access", "account", "private", least=4),
    _named("secret"),
    _named("passwd"),
    _named("password"),
    _named("passphrase"),
    _named("authorization"),
    _named("pwd(?<![a-z]pwd)", value=r"[^\s\"',&;/~.$\\]"),  # the shell's PWD is a folder
    # Alone, the word mostly means a piece of text: a secret has digits in it.
    re.compile(
        rb"token(?<![\w-]token)"
        + _SIGNS.encode()
        + rb"[\"']?(?=[a-z._~+/=-]*\d)([a-z0-9._~+/=-]{8,})"
    ),
    _named("signature", "amz", least=8),
    _named("credential", "amz", least=8),
    re.compile(rb"\?(?:sig|signature|key|token)=([^\s\"'&;]{8,})"),
    re.compile(rb"&(?:sig|signature|key|token)=([^\s\"'&;]{8,})"),
    re.compile(rb"bearer\s+([a-z0-9._~+/=-]{12,})"),
    re.compile(
        rb"--(?:[a-z0-9]+-)?(?:password|passwd|passphrase|secret|(?:api|secret|access)-?key)"
        rb"\s+[\"']?(?!--)([^\s\"']{3,})"
    ),
]


class Mask:
    """Masks secrets in text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: set[bytes] = set()
        self._reach = _LONGEST_SHAPE
        self.hide(values)

    def hide(self, values: Iterable[str]) -> None:
        """Add values to mask."""
        new = {
            form.encode("utf-8", "surrogateescape")
            for value in values
            if len(value) >= _SHORTEST
            for form in secret.forms(value)
        }
        self._forms = (
            self._forms | new
        )  # a new set: a log's thread may be iterating over the old one
        self._reach = max([self._reach, *map(len, new)])

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        data = text.encode("utf-8", "surrogateescape")
        return self.clean(data).decode("utf-8", "surrogateescape")

    def clean(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        places = self.places(data)
        if not places:
            return data
        ends = [0, *(end for _, end in places)]
        before = (data[end:begin] for end, (begin, _) in zip(ends, places, strict=False))
        return MASK.join([*before, data[ends[-1] :]])

    def places(self, data: bytes) -> list[tuple[int, int]]:
        """Start and end of each secret, in order, without overlaps."""
        found: list[tuple[int, int]] = []
        for begin, end in sorted(self._secrets(data)):
            if found and begin < found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], end)
            else:
                found.append((begin, end))
        return found

    def answer(self, body: bytes) -> bytes:
        """An answer's body without secrets; unchanged if it has none, and JSON stays JSON."""
        cleaned = self.clean(body)
        if cleaned == body or _is_json(cleaned) or not _is_json(body):
            return cleaned
        return json.dumps(secret.in_texts(self, json.loads(body))).encode()

    def whole(self, data: bytes) -> int:
        """Length of the prefix of a text that can be cleaned before the rest arrives."""
        cut = max(0, len(data) - self._reach)
        for begin, end in sorted(self._secrets(data), reverse=True):
            if begin < cut < end:
                cut = begin
        return cut or len(data)

    def _secrets(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Start and end of each secret; they may overlap."""
        for form in self._forms:
            begin = data.find(form)
            while begin >= 0:
                yield begin, begin + len(form)
                begin = data.find(form, begin + 1)
        for text, patterns in ((data, _SHAPES), (data.lower(), _NAMED)):
            for pattern in patterns:
                yield from (found.span(found.lastindex or 0) for found in pattern.finditer(text))


def hidden_values(given: Mapping[str, str], inherited: Mapping[str, str]) -> list[str]:
    """Values of environment variables to mask.

    All given values except short ones (`1`, `true`) and existing paths: masking those would only spoil error
    messages. Inherited values count if their name suggests a secret.
    """
    named = [
        value for name, value in {**inherited, **given}.items() if _SECRET_NAME.search(name.upper())
    ]
    others = [value for value in given.values() if len(value) >= _SHORTEST_PART]
    return [
        value
        for value in (*named, *others)
        if value.lower() not in _PLAIN and not (value.startswith("/") and os.access(value, os.F_OK))
    ]


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
