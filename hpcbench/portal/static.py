"""The web client's files, read once: a request's path is matched with their names, never with the disk."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from functools import cached_property
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from hpcbench.portal.faults import missing

BUILT = Path(__file__).parent / "static"
"""Output of `npm run build`: the client."""

_PACKED = (".html", ".js", ".css", ".svg", ".json", ".map", ".txt")
_KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".woff2": "font/woff2",
}

_MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>hpcbench</title>
<p>The web client is not built: <code>npm ci</code> and <code>npm run build</code> in the repository's
<code>portal/</code> do it. Without it: <a href="plain">the plain status page</a>.
"""


class _File:
    """A file in the form in which it is sent."""

    def __init__(self, content: bytes, suffix: str) -> None:
        guessed = mimetypes.guess_type(f"x{suffix}")[0]
        self.kind = _KINDS.get(suffix) or guessed or "application/octet-stream"
        self.plain = content
        self.etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        self._worth = suffix in _PACKED

    @cached_property
    def packed(self) -> bytes | None:
        """Compressed, where that is shorter; computed at the first request, which takes a moment."""
        packed = gzip.compress(self.plain, 9, mtime=0) if self._worth else self.plain
        return packed if len(packed) < len(self.plain) else None


class Client:
    """The client's files.

    Args:
        folder: folder of the files; it is read only once.
    """

    def __init__(self, folder: Path = BUILT) -> None:
        self._files = {
            f"/{path.relative_to(folder).as_posix()}": _File(path.read_bytes(), path.suffix)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        index = self._files.pop("/index.html", None)
        self._files["/"] = index or _File(_MISSING, ".html")

    @property
    def paths(self) -> frozenset[str]:
        """Public paths: they contain no data of the user."""
        return frozenset(self._files)

    def router(self) -> APIRouter:
        """Routes of the files, and the answer to unknown paths."""
        routes = APIRouter(include_in_schema=False)

        @routes.get("/{path:path}")
        async def file(path: str, request: Request) -> Response:
            found = self._files.get(f"/{path}")
            if found is None:
                raise missing("there is no such file")
            # Names of assets change with their contents.
            lasting = path.startswith("assets/")
            return await _answer(
                request, found, "public, max-age=31536000, immutable" if lasting else "no-cache"
            )

        return routes


async def _answer(request: Request, file: _File, caching: str) -> Response:
    headers = {"Cache-Control": caching, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = file.plain
    if "gzip" in request.headers.get("accept-encoding", ""):
        packed = await run_in_threadpool(lambda: file.packed)
        if packed is not None:
            content, headers["Content-Encoding"] = packed, "gzip"
    return Response(content, media_type=file.kind, headers=headers)
