"""Many answers in a few files: quotas of clusters count files, and so do archives and file servers.

    data/packs/KIND-NNNN     answers, one after the other; KIND is `answers`, `thumbs` or `images`
    data/names/N.json        {NAME: [PACK, FIRST BYTE, BYTES]} for the names with crc32(NAME) % files == N

An answer is read with the whole of its pack: not every file server sends parts of files. Answers that belong
together are recorded after each other, so the next one is mostly in the same pack. Contents that are the same
are kept once.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Literal

Kind = Literal["answers", "thumbs", "images"]

PACK_BYTES = 512 << 10
"""Bytes at which a pack is full; an answer may be larger and is then alone in its pack."""

NAMES = 1000
"""Names in a file of names, about."""

PICTURES = ("data/packs/thumbs-", "data/packs/images-")
"""Beginnings of the names of files that compression does not make smaller."""


class Packs:
    """Packs that are being written."""

    def __init__(self, put: Callable[[str, bytes], None]) -> None:
        """Write nothing yet.

        Args:
            put: writes a file.
        """
        self._put = put
        self._open: dict[Kind, bytearray] = {}
        self._number = 0
        self._names: dict[Kind, str] = {}
        self._places: dict[str, tuple[str, int, int]] = {}
        self._same: dict[bytes, tuple[str, int, int]] = {}

    def add(self, name: str, data: bytes, kind: Kind = "answers") -> None:
        """Keep an answer.

        Raises:
            ValueError: there is an answer of this name.
        """
        if name in self._places:
            raise ValueError(f"there are two answers named {name}")
        key = hashlib.sha256(data).digest()
        if key not in self._same:
            self._same[key] = self._write(data, kind)
        self._places[name] = self._same[key]

    def _write(self, data: bytes, kind: Kind) -> tuple[str, int, int]:
        pack = self._open.get(kind)
        if pack is not None and len(pack) + len(data) > PACK_BYTES:
            self._end(kind)
            pack = None
        if pack is None:
            self._number += 1
            self._names[kind] = f"{kind}-{self._number:04d}"
            pack = self._open[kind] = bytearray()
        begin = len(pack)
        pack += data
        return self._names[kind], begin, len(data)

    def _end(self, kind: Kind) -> None:
        self._put(f"data/packs/{self._names[kind]}", bytes(self._open.pop(kind)))

    def close(self) -> int:
        """Write what is not written yet; the number of files of names."""
        for kind in list(self._open):
            self._end(kind)
        files = max(1, len(self._places) // NAMES)
        found: list[dict[str, tuple[str, int, int]]] = [{} for _ in range(files)]
        for name, place in self._places.items():
            found[zlib.crc32(name.encode("utf-8", "surrogatepass")) % files][name] = place
        for number, names in enumerate(found):
            text = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
            self._put(f"data/names/{number}.json", text.encode("utf-8", "surrogatepass"))
        return files
