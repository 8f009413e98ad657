"""Answers that are kept as they are sent: compressed JSON, a hundredth of the memory of its objects."""

from __future__ import annotations

import gzip

from fastapi import Request, Response

LEVEL = 1
"""As all other answers: a higher level takes longer than a tunnel gains."""


def packed(text: str | bytes) -> bytes:
    """A JSON text, compressed; the same text gives the same bytes."""
    data = text.encode() if isinstance(text, str) else text
    return gzip.compress(data, LEVEL, mtime=0)


def packed_answer(request: Request, data: bytes) -> Response:
    """A compressed JSON text as an answer; unpacked for the rare client that does not take it so."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(data, headers=headers, media_type="application/json")
    return Response(gzip.decompress(data), media_type="application/json")
