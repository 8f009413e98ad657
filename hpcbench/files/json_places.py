"""Where the parts of a large JSON file are, so that a reader of one part need not parse all others.

The scores of a hundred run tasks take a megabyte. `locate` finds the brackets of the file once and keeps
16 bytes a part; `read` then reads and parses single parts.
"""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in json.decoder, not in stubs
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from hpcbench.files.atomic import unless_stale

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPACE = " \t\n\r"
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

SMALL = 1 << 18
"""Bytes up to which a file is parsed to find its places: in 1 ms, without numpy, which takes 16 MB."""

Place = tuple[int, int]
"""First byte of a value, and the byte after its last one."""


class Changed(ValueError):
    """The file is another one than that whose places are known."""


@dataclass(frozen=True, slots=True)
class Places:
    """Places of values in one version of a file."""

    identity: tuple[int, int, int]
    """Inode, size and modification time of the file."""
    whole: Mapping[str, Place]
    """Member of the file's object → its place."""
    numbers: Mapping[str, int]
    """Name of a part → its number; files with the same names share the mapping."""
    bounds: array[int] = field(repr=False)
    """Place of each part, two numbers a part."""

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.numbers)

    def part(self, name: str) -> Place | None:
        """Place of a part; None: there is none of that name."""
        number = self.numbers.get(name)
        return None if number is None else (self.bounds[2 * number], self.bounds[2 * number + 1])

    def to_json(self) -> bytes:
        """As JSON, for an index."""
        names, bounds = list(self.numbers), list(self.bounds)
        return to_json([self.identity, self.whole, names, bounds])

    @classmethod
    def of_json(cls, text: str | bytes) -> Places:
        """The places that `to_json` wrote."""
        identity, whole, names, bounds = from_json(text)
        members = {name: (start, stop) for name, (start, stop) in whole.items()}
        return cls(tuple(identity), members, _numbered(tuple(names)), array("Q", bounds))


def locate(
    path: Path, within: str, name_of: Callable[[Any], str] | None = None, most: int = 64 << 20
) -> Places:
    """Places in a file with a JSON object.

    Args:
        path: the file.
        within: member of the object whose own members or elements are the parts.
        name_of: name of an element; None: the parts are members, and have names.
        most: bytes of the largest file that is read.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has no JSON object, or is larger.
    """
    data, identity = unless_stale(lambda: _all(path, most))
    if len(data) <= SMALL:
        # A fault in one part must not hide the others: brackets find them, too.
        with contextlib.suppress(ValueError, RecursionError):
            return _located(
                path, data, identity, within, name_of, lambda text, at: _scan(text, at)[1]
            )
    brackets = _Brackets(data)
    return _located(path, data, identity, within, name_of, lambda _, at: brackets.after(at))


def _located(
    path: Path,
    data: bytes,
    identity: tuple[int, int, int],
    within: str,
    name_of: Callable[[Any], str] | None,
    after: Callable[[str, int], int],
) -> Places:
    """The places; `after` gives the place after the object or list that begins at a place of the text."""
    # Each byte is one character, so that places in the text are places in the file. The bytes of a longer
    # character are no characters of JSON's structure.
    text = data.decode("latin-1")
    parts: list[tuple[str, Place]] = []

    def end_of(_: str, start: int) -> int:
        return after(text, start) if text[start] in "{[" else _scan(text, start)[1]

    def end_of_member(name: str, start: int) -> int:
        if name != within:
            return end_of(name, start)
        if text[start] == "[" and name_of is not None:
            found, stop = _elements(text, start, end_of)
            parts.extend((name_of(from_json(data[slice(*one)])), one) for one in found)
        else:
            named, stop = _members(text, start, end_of)
            parts.extend(named)
        return stop

    try:
        whole, _ = _members(text, _skip(text, 0), end_of_member)
    except (IndexError, StopIteration) as error:
        raise ValueError(f"{path.name} is not a JSON object") from error
    last = dict(parts)  # of two members of one name the last one counts, as for other readers
    bounds = array("Q", (bound for place in last.values() for bound in place))
    return Places(identity, dict(whole), _numbered(tuple(last)), bounds)


def read(path: Path, places: Places, wanted: Sequence[Place]) -> list[Any]:
    """The values at some places.

    Raises:
        Changed: the file is another one by now.
        OSError: it cannot be read.
        ValueError: a value is no JSON.
    """

    def values() -> list[Any]:
        with path.open("rb") as file:
            descriptor = file.fileno()
            if _identity(descriptor) != places.identity:
                raise Changed(f"{path.name} has changed")
            return [from_json(os.pread(descriptor, stop - start, start)) for start, stop in wanted]

    return unless_stale(values)


def _all(path: Path, most: int) -> tuple[bytes, tuple[int, int, int]]:
    with path.open("rb") as file:
        identity = _identity(file.fileno())
        if identity[1] > most:
            raise ValueError(f"{path.name} is larger than {most} bytes")
        return file.read(), identity


def _identity(descriptor: int) -> tuple[int, int, int]:
    stat = os.fstat(descriptor)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=64)
def _numbered(names: tuple[str, ...]) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(names)}


def _members(
    text: str, at: int, end_of: Callable[[str, int], int]
) -> tuple[list[tuple[str, Place]], int]:
    """Members of the object that begins at a place, and the place after it."""
    found: list[tuple[str, Place]] = []
    at = _skip(text, _expect(text, at, "{"))
    if text[at] == "}":
        return found, at + 1
    while True:
        begin = at
        at = int(scanstring(text, _expect(text, at, '"'), True)[1])
        name = str(from_json(text[begin:at].encode("latin-1")))
        start = _skip(text, _expect(text, _skip(text, at), ":"))
        stop = end_of(name, start)
        found.append((name, (start, stop)))
        at = _skip(text, stop)
        if text[at] == "}":
            return found, at + 1
        at = _skip(text, _expect(text, at, ","))


def _elements(text: str, at: int, end_of: Callable[[str, int], int]) -> tuple[list[Place], int]:
    """Places of the elements of the list that begins at a place, and the place after the list."""
    found: list[Place] = []
    at = _skip(text, _expect(text, at, "["))
    if text[at] == "]":
        return found, at + 1
    while True:
        stop = end_of("", at)
        found.append((at, stop))
        at = _skip(text, stop)
        if text[at] == "]":
            return found, at + 1
        at = _skip(text, _expect(text, at, ","))


class _Brackets:
    """Which bracket closes which: a value is skipped without its parts becoming objects.

    Args:
        data: a JSON text. Nothing in it is judged: `read` does so with each part.
    """

    def __init__(self, data: bytes) -> None:
        import numpy  # most users of this package have no need of it

        characters = numpy.frombuffer(data, numpy.uint8)
        alike = characters | 0x20  # `[` becomes `{`, and `]` becomes `}`; no other character does
        places = numpy.flatnonzero((alike == ord("{")) | (alike == ord("}")))
        quotes = _quotes(characters)
        places = places[numpy.searchsorted(quotes, places) % 2 == 0]  # the others are in texts
        self._opens = alike[places] == ord("{")
        self._places = places
        self._depths = numpy.cumsum(numpy.where(self._opens, 1, -1))
        self._closing: dict[int, NDArray[Any]] = {}

    def after(self, start: int) -> int:
        """Place after the value that the bracket at `start` opens.

        Raises:
            ValueError: no bracket closes it.
        """
        number = int(self._places.searchsorted(start))
        outside = int(self._depths[number]) - 1
        closing = self._closing.get(outside)
        if closing is None:
            there = (~self._opens & (self._depths == outside)).nonzero()[0]
            closing = self._closing[outside] = there
        found = int(closing.searchsorted(number))
        if found == len(closing):
            raise ValueError(f"byte {start} opens a value that does not end")
        return int(self._places[closing[found]]) + 1


def _quotes(characters: NDArray[Any]) -> NDArray[Any]:
    """Places of the quotes that begin and end texts, in order."""
    import numpy

    quotes = numpy.flatnonzero(characters == ord('"'))
    slashes = numpy.flatnonzero(characters == ord("\\"))
    if not len(slashes):
        return quotes
    # Of slashes in a row every second one is escaped; so is a quote after an odd number of them.
    first = numpy.diff(slashes, prepend=-2) != 1
    begins = numpy.maximum.accumulate(numpy.where(first, slashes, 0))
    escaped = numpy.zeros(len(characters) + 1, dtype=bool)
    escaped[slashes[(slashes - begins) % 2 == 0] + 1] = True
    return quotes[~escaped[quotes]]


def _expect(text: str, at: int, character: str) -> int:
    if text[at] != character:
        raise ValueError(f"byte {at} is not '{character}'")
    return at + 1


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
