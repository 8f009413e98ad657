"""A fake of the Hugging Face hub, which cannot be reached from here: the three addresses of its published API
that a download asks, `/api/models/NAME/revision/REVISION`, `/api/models/NAME/tree/REVISION` and
`/NAME/resolve/REVISION/PATH` (of datasets with `datasets` before their names), gated ones too.

A client that asks what a branch is gets a commit, which stays what it was."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"


@contextmanager
def hub(
    repositories: Mapping[str, Mapping[str, bytes]], gated: tuple[str, ...] = ()
) -> Iterator[str]:
    """Serve repositories, name (of datasets `datasets/NAME`) → path → content; gives the address."""

    commits: dict[str, Mapping[str, bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            api = path.startswith("/api/")
            rest = path.removeprefix("/api").removeprefix("/models").lstrip("/")
            verb = ("tree" if "/tree/" in rest else "revision") if api else "resolve"
            name, _, tail = rest.partition(f"/{verb}/")
            revision, _, below = tail.partition("/")
            files = repositories.get(name)
            if files is not None:
                files = commits.get(revision, files)
            if name in gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(403, b"gated", {"X-Error-Code": "GatedRepo"}, body=body)
            elif files is None:
                self._send(404, b"none", {"X-Error-Code": "RepoNotFound"}, body=body)
            elif verb == "revision":
                commit = hashlib.sha1(repr((name, sorted(files.items()))).encode()).hexdigest()
                commits[commit] = dict(files)
                self._send(200, json.dumps({"id": name, "sha": commit}).encode(), {}, body=body)
            elif api:
                listed = []
                for path, data in files.items():
                    entry = {
                        "type": "file",
                        "path": path,
                        "size": len(data),
                        "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
                    }
                    if len(data) > 99:  # what the hub keeps as large files, with their SHA-256
                        digest = hashlib.sha256(data).hexdigest()
                        entry["lfs"] = {"oid": digest, "size": len(data)}
                    listed.append(entry)
                self._send(200, json.dumps(listed).encode(), {}, body=body)
            else:
                data = files.get(below)
                if data is None:
                    self._send(404, b"none", {}, body=body)
                    return
                asked = self.headers.get("Range")
                if asked:
                    start, _, stop = asked.removeprefix("bytes=").partition("-")
                    part = data[int(start) : int(stop) + 1]
                    about = f"bytes {start}-{int(start) + len(part) - 1}/{len(data)}"
                    self._send(206, part, {"Content-Range": about}, body=body)
                else:
                    self._send(200, data, {"ETag": f'"{hash(data)}"'}, body=body)

        def _send(
            self, status: int, data: bytes, headers: Mapping[str, str], *, body: bool
        ) -> None:
            self.send_response(status)
            dated = {"Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT", **headers}
            for key, value in {**dated, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
