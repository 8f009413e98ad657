"""A real HTTP server whose answers a test makes up, for what no server at hand does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Serving:
    """Where it is, and what it was asked."""

    url: str
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path with its query, headers."""


@contextmanager
def serving(
    answer: Callable[[str, Mapping[str, str]], Reply], *, ranges: bool = True
) -> Iterator[Serving]:
    """Answer GET and HEAD of a path, with its headers, with status, headers and body.

    Ranges are cut out, unless the server should not know them.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made.asked.append((self.command, self.path, dict(self.headers)))
            status, headers, body = answer(self.path, self.headers)
            about = dict(headers)
            if ranges and status == 200 and (asked := self.headers.get("Range")):
                start, _, stop = asked.removeprefix("bytes=").partition("-")
                whole, body = len(body), body[int(start) : int(stop) + 1]
                status = 206
                about["Content-Range"] = f"bytes {start}-{int(start) + len(body) - 1}/{whole}"
            self.send_response(status)
            for key, value in {**about, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Serving(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


def bucket_list(keys: Sequence[tuple[str, int]]) -> bytes:
    """S3's answer to a request for a list of a bucket: keys and sizes, each with the same ETag."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2025-07-01T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;aa&quot;</ETag><Size>{size}</Size></Contents>"
        for key, size in keys
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    ).encode()
