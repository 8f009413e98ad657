"""What lies behind HTTP: folders that a web server lists, single files, and the Hugging Face hub.

    https://HOST/FOLDER/          a folder with an index page, or with a SHA256SUMS file
    https://HOST/FILE[?QUERY]     one file
    hf://ORGANISATION/NAME[@REVISION], hf://datasets/ORGANISATION/NAME[@REVISION]

Files come through obstore, which keeps connections, follows redirects and reads ranges; pages and the hub's
API, which are few, through the standard library.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any, ClassVar
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from pydantic import BaseModel

from hpcbench.data.hub import COMMIT, repository
from hpcbench.data.storage import CHANGED, PIECE, told_as_os_error
from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint
from hpcbench.plugins import StoredFile

SUMS = "SHA256SUMS"
"""File of a folder that lists it, as `sha256sum` writes it: no index page is needed then."""

PARTS = 4 << 20
"""Most bytes asked for in one range."""

PLACES_KEPT = 10_000
"""URLs for which it is remembered where a server leads."""

SMALL = 32 << 20
"""Most bytes of a file of the hub that are checked at once; those without SHA-256 have 10 MB at most."""

DEEPEST = 20
"""Folders in folders; a server that links in a circle ends here."""


UNKNOWN_FORM = "lists its files in a form that is not known"


class HttpStorage:
    """Files of a web server, read only."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 16

    class Options(BaseModel, extra="forbid", frozen=True):
        """How to ask."""

        headers: Mapping[str, str] = {}
        """Sent with each request to this server, e.g. `Authorization`; secrets as references."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        self._web = _Web(self._options.headers)

    def list(self, url: str) -> Iterator[StoredFile]:
        """Every file of a folder by its SHA256SUMS or index pages, or the one file there is."""
        if not url.endswith("/"):
            size, mark = self._web.head(url)
            yield StoredFile(unquote(urlsplit(url).path.rpartition("/")[2]), size, mark)
            return
        sums = self._sums(url)
        paths = sums.keys() if sums is not None else list(self._linked(url, "", 0))
        with ThreadPoolExecutor(self.parallel) as pool:
            heads = pool.map(lambda path: self._web.head(url + quote(path)), paths)
            for path, (size, mark) in zip(paths, heads, strict=True):
                yield StoredFile(path, size, mark, (sums or {}).get(path))

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterable[bytes]:
        """Bytes of one file."""
        place = url + quote(file.path) if url.endswith("/") else url
        return self._web.read(place, file, start, stop, file.mark)

    def put(self, source: Path, url: str, path: str) -> None:
        """There is no common way to write through HTTP."""
        raise PermissionError(f"{url} can only be read")

    def _sums(self, url: str) -> dict[str, str] | None:
        try:
            text = self._web.get(url + SUMS).decode()
        except (FileNotFoundError, PermissionError):
            return None  # what is like S3 refuses to say that there is none
        except UnicodeDecodeError as error:
            raise PermissionError(f"{url}{SUMS} is not UTF-8") from error
        found = {}
        for line in text.splitlines():
            digest, _, path = line.partition(" ")
            if not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise PermissionError(f"{url}{SUMS}: a line is not SHA256  PATH: {line[:60]!r}")
            found[path.lstrip(" *").removeprefix("./")] = digest
        return found

    def _linked(self, top: str, below: str, depth: int) -> Iterator[str]:
        """Paths that index pages link, folders in folders."""
        here = top + quote(below)
        page = _Links()
        page.feed(self._web.get(here).decode("utf-8", "replace"))
        for href in dict.fromkeys(page.found):
            target = urldefrag(urljoin(here, href))[0]
            name = unquote(target.removeprefix(here))
            inside = target.startswith(here) and name.strip("/") and "/" not in name.rstrip("/")
            if not inside or name.startswith((".", "?")) or "?" in target:
                continue
            if not name.endswith("/"):
                yield below + name
            elif depth < DEEPEST:
                yield from self._linked(top, below + name, depth + 1)


class HubStorage:
    """Models and datasets of the Hugging Face hub, or of a mirror that HF_ENDPOINT names; read only."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 8

    class Options(BaseModel, extra="forbid", frozen=True):
        """How to ask."""

        token: str | None = None
        """Token for gated and private ones, a reference; none: HF_TOKEN, or what `hf auth login` stored."""
        endpoint: str | None = None
        """The hub's address; none: HF_ENDPOINT, or https://huggingface.co."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = self.Options.model_validate(dict(options))
        token = given.token or _stored_token()
        self._web = _Web({"Authorization": f"Bearer {token}"} if token else {})
        endpoint = given.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        self._endpoint = endpoint.rstrip("/")
        self._commits: dict[str, str] = {}  # what branches and tags were when they were listed

    def list(self, url: str) -> Iterator[StoredFile]:
        """Every file of the repository at its revision; large ones with their SHA-256."""
        kind, name, revision = repository(url)
        about = f"{self._endpoint}/api/{kind}/{name}"
        commit = self._commits[url] = self._commit(about, revision or "main")
        page: str | None = f"{about}/tree/{commit}?recursive=true"
        while page:
            data, page = self._web.get_json(page)
            try:
                yield from (_of_hub(entry) for entry in data if _shown(entry))
            except (KeyError, TypeError) as error:
                raise OSError(f"{self._endpoint} {UNKNOWN_FORM}") from error

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterable[bytes]:
        """Bytes of one file."""
        kind, name, revision = repository(url)
        prefix = "" if kind == "models" else f"{kind}/"
        commit = self._commits.get(url) or revision or "main"
        place = (
            f"{self._endpoint}/{prefix}{name}/resolve/{quote(commit, safe='')}/{quote(file.path)}"
        )
        if file.sha256 or file.size > SMALL or not COMMIT.fullmatch(file.mark):
            return self._web.read(place, file, start, stop)
        # Whole, whatever is asked for: a part of it could not be checked.
        return [_checked(file, self._web.read(place, file, 0, file.size))[start:stop]]

    def put(self, source: Path, url: str, path: str) -> None:
        """Uploading to the hub is not what this is for."""
        raise PermissionError(f"{url} can only be read")

    def _commit(self, about: str, revision: str) -> str:
        """What a branch or tag is now: it may be another before all files are read."""
        if COMMIT.fullmatch(revision):
            return revision
        found, _ = self._web.get_json(f"{about}/revision/{quote(revision, safe='')}")
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise OSError(f"{self._endpoint} {UNKNOWN_FORM}")
        return commit


class _Web:
    """GET and HEAD with the same headers, which may be secrets: none goes to where a server leads."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)
        # obstore's client leaves only this one behind when it is led to another server.
        self._followed_by_us = {name.lower() for name in headers} - {"authorization"}
        self._pages = urllib.request.build_opener(_Redirects)
        self._stores: dict[tuple[str, bool], Any] = {}
        self._places: dict[str, str] = {}  # where servers lead, of URLs that we follow
        self._lock = threading.Lock()

    def get(self, url: str) -> bytes:
        """A small page."""
        return self._get(url)[0]

    def get_json(self, url: str) -> tuple[Any, str | None]:
        """A page of an API, and the address of the next one."""
        body, link = self._get(url)
        following = re.search(r'<([^>]+)>;\s*rel="next"', link)
        page = urljoin(url, following[1]) if following else None
        if page and _origin(page) != _origin(url):  # a mirror hands on what the hub itself says
            page = urlsplit(url)._replace(query=urlsplit(page).query).geturl()
        if page == url:
            raise PermissionError(f"{url} goes on at itself")
        try:
            return json.loads(body), page
        except ValueError as error:
            raise OSError(f"{url} answers what is not JSON: {body[:40]!r}") from error

    def head(self, url: str) -> tuple[int, str]:
        """Size of a file, and what marks its content."""
        with told_as_os_error(url, _explain):
            found = self._obstore.head(*self._at(url))
            return found["size"], _mark(found)

    def read(
        self, url: str, file: StoredFile, start: int, stop: int, mark: str = ""
    ) -> Iterator[bytes]:
        """Bytes of a file; parts of it only of one with this mark, if it is told."""
        with told_as_os_error(url, _explain):
            store, path = self._at(url)
            if (start, stop) == (0, file.size):
                found = self._obstore.get(store, path)
                if found.meta["size"] != file.size:
                    raise OSError(f"{url} {CHANGED}")
                if file.size <= 1 << 20:
                    yield bytes(found.bytes())
                else:
                    yield from map(bytes, found.stream(min_chunk_size=PIECE))
            else:
                yield from self._part(store, path, start, stop, "" if file.sha256 else mark)

    def _part(self, store: Any, path: str, start: int, stop: int, mark: str) -> Iterator[bytes]:
        def get(**options: Any) -> Any:
            found = self._obstore.get(store, path, options=options)
            if mark and _mark(found.meta) not in ("", mark):
                raise OSError(f"{path} {CHANGED}")
            return found

        try:
            for at in range(start, stop, PARTS):
                end = min(at + PARTS, stop)
                yield bytes(get(range=(at, end)).bytes())
                start = end
        except self._obstore.exceptions.NotSupportedError:
            # A server without ranges: what is before the part is read and dropped.
            at = 0
            for piece in get().stream(min_chunk_size=PIECE):
                yield bytes(piece)[max(0, start - at) : max(0, stop - at)]
                at += len(piece)
                if at >= stop:
                    return

    def _get(self, url: str) -> tuple[bytes, str]:
        with self._opened(url, "GET") as reply:
            return reply.read(), reply.headers.get("Link") or ""

    @contextmanager
    def _opened(self, url: str, method: str) -> Iterator[Any]:
        request = urllib.request.Request(url, headers=self._headers, method=method)  # noqa: S310 - http by the plugin's name
        try:
            with self._pages.open(request, timeout=60) as reply:
                yield reply
        except http.client.HTTPException as error:
            raise OSError(f"{url}: the answer broke off ({type(error).__name__})") from error
        except urllib.error.HTTPError as error:
            error.close()  # it is the open answer, too
            raise _refused(url, error.code, error.headers.get("X-Error-Code") or "") from error

    def _at(self, url: str) -> tuple[Any, str]:
        """obstore's view of a server, and a path there."""
        place = self._led_to(url) if self._followed_by_us else url
        ours, parts = _origin(place) == _origin(url), urlsplit(place)
        server, path = f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")
        if parts.query:  # signed ones are never seen again: not worth keeping
            return self._store(f"{server}/?{parts.query}", ours), path
        with self._lock:
            if (server, ours) not in self._stores:
                self._stores[server, ours] = self._store(server, ours)
            return self._stores[server, ours], path

    def _led_to(self, url: str) -> str:
        """Where a server leads; kept, unless it may be signed, which ends soon."""
        place = self._places.get(url)
        if place is None:
            with self._opened(url, "HEAD") as reply:
                place = str(reply.url)
            if place == url or not urlsplit(place).query:
                if len(self._places) >= PLACES_KEPT:
                    self._places.clear()  # other threads may be looking just now
                self._places[url] = place
        return place

    def _store(self, server: str, ours: bool) -> Any:
        return self._obstore.store.HTTPStore(
            server,
            client_options={
                "allow_http": True,
                "timeout": "300s",
                "default_headers": self._headers if ours else {},
            },
            retry_config={"max_retries": 2},
        )

    @cached_property
    def _obstore(self) -> Any:
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        except ImportError as error:
            raise EnvironmentFault(
                "http://, https:// and hf:// need obstore", remedy=install_hint("http")
            ) from error
        return obstore


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and leaves our headers behind where they lead to another server."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None:
            following.method = req.get_method()
            if _origin(newurl) != _origin(req.full_url):
                following.headers.clear()
        return following


class _Links(HTMLParser):
    """The addresses of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _explain(error: BaseException) -> tuple[type[OSError], str]:
    name, text = type(error).__name__, str(error)
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError, "refused: a token may be missing or too weak (HF_TOKEN for the hub)"
    if name in ("NotFoundError", "FileNotFoundError"):
        return FileNotFoundError, "it is not there"
    # What it quotes may be where we were led to, signed in its query.
    return OSError, re.sub(r"\?\S+", "?…", text.split("Debug source")[0])


def _refused(url: str, status: int, code: str) -> OSError:
    if code == "GatedRepo":
        return PermissionError(
            f"{url} is gated: accept its terms on its page, and give a token that may read it (HF_TOKEN)"
        )
    if status in (401, 403):
        return PermissionError(f"{url} is refused ({status}): a token may be missing or too weak")
    if status in (404, 410):
        return FileNotFoundError(f"{url} is not there ({status})")
    return OSError(f"{url}: the server answers {status}")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _mark(found: Mapping[str, Any]) -> str:
    """What marks the content; empty where the server tells neither tag nor time, to obstore 1970."""
    changed = found["last_modified"]
    return found["e_tag"] or (changed.isoformat() if changed.timestamp() else "")


def _checked(file: StoredFile, pieces: Iterable[bytes]) -> bytes:
    """A small file of the hub, if it is what git's hash says."""
    data = b"".join(pieces)
    digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if digest != file.mark:
        raise OSError(f"{file.path} came with the hash {digest}, not {file.mark}")
    return data


def _shown(entry: Mapping[str, Any]) -> bool:
    return entry["type"] == "file" and not entry["path"].startswith(".")


def _of_hub(entry: Mapping[str, Any]) -> StoredFile:
    large = entry.get("lfs") or {}
    return StoredFile(entry["path"], entry["size"], entry.get("oid", ""), large.get("oid"))


def _stored_token() -> str | None:
    if found := os.environ.get("HF_TOKEN"):
        return found
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    try:
        return (Path(home) / "token").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
