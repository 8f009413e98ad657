"""Header fields of HTTP/2 (RFC 7541) without tables and without compression."""

from __future__ import annotations

from collections.abc import Mapping

POST: bytes = b"\x83\x86"
"""`:method` POST and `:scheme` http, of the standard's static table."""
OK: bytes = b"\x88"
"""`:status` 200."""

_STATUS = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
_STATIC = 61


def written(fields: Mapping[str, str], *, secret: bool = False) -> bytes:
    """Encoded fields.

    Args:
        fields: names and values.
        secret: a proxy must not keep them in a table.

    Raises:
        ValueError: a field has characters that are not printable.
    """
    if any(not f"{name}{value}".isprintable() for name, value in fields.items()):
        raise ValueError("a header must not contain control characters")
    kind = b"\x10" if secret else b"\x00"
    return b"".join(kind + _literal(name) + _literal(fields[name]) for name in fields)


def read(block: bytes) -> dict[str, str]:
    """The fields of a header block, without those whose name a static table has, `:status` excepted.

    Raises:
        ValueError: it refers to a table that we did not allow, or has compressed text.
        IndexError: it is cut short.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        first = block[at]
        bits = 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4
        index, at = _number(block, at, bits)
        if bits == 5:  # the size of its table
            continue
        if index > _STATIC:
            raise ValueError(
                "the other end uses a table of headers, which it was asked not to keep"
            )
        known = ":status" if index in _STATUS else ""
        if bits == 7:
            if known:
                found[known] = _STATUS[index]
            continue
        name: str | None = known
        if index == 0:
            name, at = _text(block, at)
        value, at = _text(block, at)
        if name is None or (value is None and name and not name.endswith("-bin")):
            raise ValueError("the other end compresses the text of its headers")
        if name and value is not None:
            found[name] = value
    return found


def _literal(text: str) -> bytes:
    """A string of section 5.2, in plain text."""
    data = text.encode("latin-1")
    left = len(data) - 127
    if left < 0:
        return bytes([len(data)]) + data
    size = bytearray([127])
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    return bytes([*size, left]) + data


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number of section 5.1, and where the next byte is."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 28, 7):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number in the headers of the other end is too large")


def _text(block: bytes, at: int) -> tuple[str | None, int]:
    """A string, None if it is compressed, and where the next byte is."""
    compressed = block[at] & 0x80
    size, at = _number(block, at, 7)
    end = at + size
    if end > len(block):
        raise IndexError
    return None if compressed else block[at:end].decode("latin-1"), end
