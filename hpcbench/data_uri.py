"""Data URIs of images: the form in which OpenAI's API has them."""

from __future__ import annotations

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"BM", "image/bmp"),
)

PIECE_BYTES = 3 * 2**14
"""Bytes to encode at a time: a multiple of 3, so that base64 needs no padding between pieces."""


def uri_head(data: bytes | memoryview) -> bytes:
    """The URI up to the base64 text; only the first bytes of the image are read."""
    return b"data:" + mime(bytes(data[:16])).encode() + b";base64,"


def mime(data: bytes) -> str:
    """The MIME type of an image by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    found = (name for magic, name in _MAGIC if data.startswith(magic))
    return next(found, "application/octet-stream")
