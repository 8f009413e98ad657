"""pydantic's complaints in words: what form a text must have instead of the regular expression that checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAME = "letters, digits and . _ -, with a letter or digit first"

FORMS: Mapping[str, str] = {
    r"^[A-Za-z0-9][A-Za-z0-9._/-]*$": "letters, digits and . _ - /, with a letter or digit first",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": _NAME,
    r"^[A-Za-z0-9.!+_-]+$": "a version such as 1.2.0: letters, digits and . ! + _ -",
    r"^[0-9a-f]{40}$": "a commit: its 40 digits, 0-9 and a-f",
    r"^sha256:[0-9a-f]{64}$": "sha256: and 64 digits, 0-9 and a-f",
    r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$": "of the form [DAYS-]HH:MM:SS, such as 02:00:00",
    r"^\d+\.\d+$": "of the form MAJOR.MINOR, such as 12.4",
    r"^0?[0-7]{3}$": "three octal digits, such as 027",
    r"^https?://\S+$": "an address that begins with https:// or http://",
    r"^[^\s/@]+$": "the name of a host",
}
"""Regular expression of a field → what a text that matches it is."""


def complaint(detail: Mapping[str, Any]) -> str:
    """What pydantic says of a value, for people; one of `ValidationError.errors()`."""
    if detail["type"] == "string_pattern_mismatch":
        pattern = detail.get("ctx", {}).get("pattern", "")
        return (
            f"must be {FORMS[pattern]}" if pattern in FORMS else "is not of the form it must have"
        )
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:]
