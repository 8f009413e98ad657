"""Messages between a worker, the process that runs tools and its children: a JSON object, then raw bytes.

A message is 8 bytes with the lengths of both parts, the object, and the bytes. The object's `parts` gives the
lengths of the files in the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

HEAD = struct.Struct(">II")
MOST_TEXT = 2**20
"""Characters of the text of a result, at most."""
MOST_FILES = 64 * 2**20
"""Bytes of the images of a result together, at most."""
MOST_IMAGES = 64
"""Images of a result, at most."""
MOST_OBJECT = 16 * MOST_TEXT
"""Bytes of a message's object, at most: JSON may write a character as six or twelve."""


class TooLarge(Exception):
    """A message is larger than allowed; its text says how large."""


def pack(message: Mapping[str, Any], files: Sequence[bytes] = ()) -> bytes:
    """A message as bytes."""
    whole = {**message, "parts": [len(one) for one in files]} if files else message
    text = json.dumps(whole, separators=(",", ":")).encode()
    return b"".join([HEAD.pack(len(text), sum(map(len, files))), text, *files])


def lengths(head: bytes) -> tuple[int, int]:
    """Lengths of a message's object and files.

    Raises:
        TooLarge: it is larger than allowed.
    """
    text, files = HEAD.unpack(head)
    if text > MOST_OBJECT or files > MOST_FILES:
        raise TooLarge(f"a message of {(text + files) / 2**20:.0f} MiB")
    return text, files


def unpack(text: bytes, files: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The object and the files of a message.

    Raises:
        TooLarge: the files are more than allowed.
        ValueError: they are no message.
    """
    try:
        found = json.loads(text)
        parts, start = [], 0
        if len(given := found.get("parts", ())) > MOST_IMAGES:
            raise TooLarge(f"{len(given)} images")
        for length in given:
            parts.append(files[start : start + length])
            start += length
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError("not an object with lengths") from error
    if start != len(files):
        raise ValueError("lengths do not fit")
    return found, tuple(parts)


class Buffer:
    """Bytes as they arrive, and the whole messages in them."""

    def __init__(self) -> None:
        self._held = bytearray()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, data: bytes) -> None:
        """More bytes."""
        self._held += data

    def take(self) -> tuple[dict[str, Any], tuple[bytes, ...]] | None:
        """The next message; None: it is not whole yet.

        Raises:
            TooLarge, ValueError: see `lengths`, `unpack`.
        """
        if len(self._held) < HEAD.size:
            return None
        text, files = lengths(bytes(self._held[: HEAD.size]))
        end = HEAD.size + text + files
        if len(self._held) < end:
            return None
        middle = HEAD.size + text
        parts = bytes(self._held[HEAD.size : middle]), bytes(self._held[middle:end])
        del self._held[:end]
        return unpack(*parts)
