"""Answers that are kept as they are sent: compressed JSON, a hundredth of the memory of its objects."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from fastapi import Request, Response

LEVEL = 1
"""As all other answers: a higher level takes longer than a tunnel gains."""


def packed(text: str | bytes) -> bytes:
    """A JSON text, compressed; the same text gives the same bytes."""
    data = text.encode() if isinstance(text, str) else text
    return gzip.compress(data, LEVEL, mtime=0)


def packed_answer(
    request: Request, data: bytes, headers: Mapping[str, str] | None = None
) -> Response:
    """A compressed JSON text as an answer; unpacked for the rare client that does not take it so."""
    more = {**(headers or {}), "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            data, headers={**more, "Content-Encoding": "gzip"}, media_type="application/json"
        )
    return Response(gzip.decompress(data), headers=more, media_type="application/json")
