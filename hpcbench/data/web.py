"""Sources behind HTTP: folders that a web server lists, single files, and the Hugging Face hub.

    https://HOST/FOLDER/          a folder with an index page, or with a SHA256SUMS file
    https://HOST/FILE[?QUERY]     one file
    hf://ORGANISATION/NAME[@REVISION], hf://datasets/ORGANISATION/NAME[@REVISION]

obstore transfers files: it keeps connections, follows redirects and reads ranges. The standard library reads
index pages and the hub's API, which need few requests.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

from pydantic import BaseModel, model_validator

from hpcbench.data.hub import COMMIT, hub_path, repository
from hpcbench.data.storage import CHANGED, PIECE, as_os_error
from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint
from hpcbench.oauth.bearer import Bearer, ServerAuth
from hpcbench.plugins import StoredFile

T = TypeVar("T")

SUMS = "SHA256SUMS"
"""File that lists its folder, as `sha256sum` writes it; it replaces index pages."""

PARTS = 4 << 20
"""Most bytes requested in one range."""

PLACES_KEPT = 10_000
"""Number of URLs whose redirect targets are remembered."""

SMALL = 32 << 20
"""Most bytes of a hub file that is checked as a whole; files without SHA-256 have 10 MB at most."""

DEEPEST = 20
"""Most levels of nested folders; they end a server's circular links."""


UNKNOWN_FORM = "lists its files in an unknown form"


class HttpStorage:
    """Files of a web server, read only."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 16
    keeps_references: ClassVar[frozenset[str]] = frozenset({"auth"})

    class Options(BaseModel, extra="forbid", frozen=True):
        """How to ask."""

        headers: Mapping[str, str] = {}
        """Sent with each request to this server, e.g. `Authorization`; secrets as references."""
        auth: ServerAuth | None = None
        """Tokens of a token server, as `auth` of a model elsewhere."""

        @model_validator(mode="after")
        def _one_of_both(self) -> HttpStorage.Options:
            if self.auth is not None and "authorization" in map(str.lower, self.headers):
                raise ValueError("`auth` and `headers` both say who asks: remove one of them")
            return self

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = self.Options.model_validate(dict(options))
        auth = self._options.auth
        self._web = _Web(self._options.headers, None if auth is None else Bearer(auth))

    def list(self, url: str) -> Iterator[StoredFile]:
        """Yield every file of a folder by its SHA256SUMS or index pages, or the single file of the URL."""
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
        """Yield bytes of one file."""
        place = url + quote(file.path) if url.endswith("/") else url
        return self._web.read(place, file, start, stop, file.mark)

    def put(self, source: Path, url: str, path: str) -> None:
        """Refuse: HTTP has no common way to write."""
        raise PermissionError(f"{url} is read-only")

    def _sums(self, url: str) -> dict[str, str] | None:
        try:
            text = self._web.get(url + SUMS).decode()
        except (FileNotFoundError, PermissionError):
            return None  # servers like S3 refuse access to a missing file
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
        """Yield the paths of files that index pages link, nested folders included."""
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
    keeps_references: ClassVar[frozenset[str]] = frozenset({"auth"})

    class Options(BaseModel, extra="forbid", frozen=True):
        """How to ask."""

        token: str | None = None
        """Token for gated and private ones, a reference; none: HF_TOKEN, or what `hf auth login` stored."""
        endpoint: str | None = None
        """The hub's address; none: HF_ENDPOINT, or https://huggingface.co."""
        auth: ServerAuth | None = None
        """For a mirror: tokens of a token server instead."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = self.Options.model_validate(dict(options))
        if given.auth is not None:
            self._web = _Web({}, Bearer(given.auth))
        else:
            token = given.token or _stored_token()
            self._web = _Web({"Authorization": f"Bearer {token}"} if token else {})
        endpoint = given.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        self._endpoint = endpoint.rstrip("/")
        self._commits: dict[str, str] = {}  # commits of branches and tags at their listing

    def list(self, url: str) -> Iterator[StoredFile]:
        """Yield every file of the repository at its revision; large files with their SHA-256."""
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
        """Yield bytes of one file."""
        kind, name, revision = repository(url)
        prefix = "" if kind == "models" else f"{kind}/"
        commit = self._commits.get(url) or revision or "main"
        place = (
            f"{self._endpoint}/{prefix}{name}/resolve/{quote(commit, safe='')}/{quote(file.path)}"
        )
        if file.sha256 or file.size > SMALL or not COMMIT.fullmatch(file.mark):
            return self._web.read(place, file, start, stop)
        # Read whole for any range: a part of it could not be checked.
        return [_checked(file, self._web.read(place, file, 0, file.size))[start:stop]]

    def put(self, source: Path, url: str, path: str) -> None:
        """Refuse: hpcbench does not upload to the hub."""
        raise PermissionError(f"{url} is read-only")

    def _commit(self, about: str, revision: str) -> str:
        """The current commit of a branch or tag, which may move before all files are read."""
        if COMMIT.fullmatch(revision):
            return revision
        found, _ = self._web.get_json(f"{about}/revision/{quote(revision, safe='')}")
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise OSError(f"{self._endpoint} {UNKNOWN_FORM}")
        return commit


class _Web:
    """GET and HEAD with the same headers, which may be secrets: a redirect to another server gets none."""

    def __init__(self, headers: Mapping[str, str], bearer: Bearer | None = None) -> None:
        self._given, self._bearer = dict(headers), bearer
        # On a redirect to another server obstore's client drops only this header.
        self._followed_by_us = {name.lower() for name in headers} - {"authorization"}
        self._pages = urllib.request.build_opener(_Redirects)
        self._stores: dict[tuple[str, bool], Any] = {}
        self._stores_token = ""  # they have its header
        self._places: dict[str, str] = {}  # URL → target of redirects that we follow
        self._lock = threading.Lock()

    @property
    def _headers(self) -> dict[str, str]:
        return {**self._given, **(self._bearer.headers() if self._bearer is not None else {})}

    def get(self, url: str) -> bytes:
        """A small page."""
        return self._get(url)[0]

    def get_json(self, url: str) -> tuple[Any, str | None]:
        """A page of an API, and the address of the next one."""
        body, link = self._get(url)
        following = re.search(r'<([^>]+)>;\s*rel="next"', link)
        page = urljoin(url, following[1]) if following else None
        if page and _origin(page) != _origin(url):  # a mirror passes on the hub's own address
            page = urlsplit(url)._replace(query=urlsplit(page).query).geturl()
        if page == url:
            raise PermissionError(f"{url} names itself as its next page")
        try:
            return json.loads(body), page
        except ValueError as error:
            raise OSError(f"the answer of {url} is not JSON: {body[:40]!r}") from error

    def head(self, url: str) -> tuple[int, str]:
        """Size of a file, and the mark of its content."""

        def ask() -> tuple[int, str]:
            with as_os_error(url, _explain):
                found = self._obstore.head(*self._at(url))
                return found["size"], _mark(found)

        return self._by_token(ask)

    def read(
        self, url: str, file: StoredFile, start: int, stop: int, mark: str = ""
    ) -> Iterator[bytes]:
        """Yield bytes of a file; a given mark must match when only a part is read."""

        def begin() -> tuple[bytes, Iterator[bytes]]:
            pieces = self._read(url, file, start, stop, mark)
            return next(pieces, b""), pieces

        first, rest = self._by_token(begin)
        if first:
            yield first
        yield from rest

    def _by_token(self, ask: Callable[[], T]) -> T:
        """Do what asks the server; once more with another token, if the server rejects this one."""
        if self._bearer is None:
            return ask()

        def answer() -> T | OSError:
            try:
                return ask()
            except OSError as error:
                if _is_401(error):
                    return error
                raise

        found = self._bearer.asked(answer, lambda one: isinstance(one, OSError))
        if isinstance(found, OSError):
            raise found
        return found

    def _read(
        self, url: str, file: StoredFile, start: int, stop: int, mark: str
    ) -> Iterator[bytes]:
        with as_os_error(url, _explain):
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
            # A server without ranges: bytes before the part are read and dropped.
            at = 0
            for piece in get().stream(min_chunk_size=PIECE):
                yield bytes(piece)[max(0, start - at) : max(0, stop - at)]
                at += len(piece)
                if at >= stop:
                    return

    def _get(self, url: str) -> tuple[bytes, str]:
        def ask() -> tuple[bytes, str]:
            with self._opened(url, "GET") as reply:
                return reply.read(), reply.headers.get("Link") or ""

        return self._by_token(ask)

    @contextmanager
    def _opened(self, url: str, method: str) -> Iterator[Any]:
        request = urllib.request.Request(url, headers=self._headers, method=method)  # noqa: S310 - http by the plugin's name
        try:
            with self._pages.open(request, timeout=60) as reply:
                yield reply
        except http.client.HTTPException as error:
            raise OSError(f"{url}: the answer is incomplete ({type(error).__name__})") from error
        except urllib.error.HTTPError as error:
            error.close()  # it is also the open response
            raise _refused(url, error.code, error.headers.get("X-Error-Code") or "") from error

    def _at(self, url: str) -> tuple[Any, str]:
        """obstore's store of a server, and a path there."""
        place = self._led_to(url) if self._followed_by_us else url
        ours, parts = _origin(place) == _origin(url), urlsplit(place)
        server, path = f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")
        if parts.query:  # signed URLs never recur: not worth keeping
            return self._store(f"{server}/?{parts.query}", ours), path
        token = "" if self._bearer is None else self._bearer.token()
        with self._lock:
            if token != self._stores_token:
                self._stores_token = token
                self._stores.clear()
            if (server, ours) not in self._stores:
                self._stores[server, ours] = self._store(server, ours)
            return self._stores[server, ours], path

    def _led_to(self, url: str) -> str:
        """The target of a URL's redirects; kept unless it may be signed: signatures expire soon."""
        place = self._places.get(url)
        if place is None:
            with self._opened(url, "HEAD") as reply:
                place = str(reply.url)
            if place == url or not urlsplit(place).query:
                if len(self._places) >= PLACES_KEPT:
                    self._places.clear()  # other threads may be reading just now
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
    """Follows redirects, and drops our headers on a redirect to another server."""

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
        return PermissionError, "access refused: check the token (HF_TOKEN for the hub)"
    if name in ("NotFoundError", "FileNotFoundError"):
        return FileNotFoundError, "it does not exist"
    # The text may quote a redirect target with a signature in its query.
    return OSError, re.sub(r"\?\S+", "?…", text.split("Debug source")[0])


def _refused(url: str, status: int, code: str) -> OSError:
    if code == "GatedRepo":
        return PermissionError(
            f"{url} is gated: accept its terms on its page, and set HF_TOKEN to a token of that account"
        )
    if status in (401, 403):
        return PermissionError(f"{url} refuses access ({status}): check the token")
    if status in (404, 410):
        return FileNotFoundError(f"{url} does not exist ({status})")
    return OSError(f"{url}: the server answers {status}")


def _is_401(error: OSError) -> bool:
    cause = error.__cause__
    return type(cause).__name__ == "UnauthenticatedError" or getattr(cause, "code", None) == 401


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _mark(found: Mapping[str, Any]) -> str:
    """The mark of the content; empty if the server gives neither tag nor time (obstore then says 1970)."""
    changed = found["last_modified"]
    return found["e_tag"] or (changed.isoformat() if changed.timestamp() else "")


def _checked(file: StoredFile, pieces: Iterable[bytes]) -> bytes:
    """The bytes of a small file of the hub, checked against git's hash."""
    data = b"".join(pieces)
    digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if digest != file.mark:
        raise OSError(f"{file.path} arrived with the hash {digest}, its source lists {file.mark}")
    return data


def _shown(entry: Mapping[str, Any]) -> bool:
    return entry["type"] == "file" and not entry["path"].startswith(".")


def _of_hub(entry: Mapping[str, Any]) -> StoredFile:
    large = entry.get("lfs") or {}
    return StoredFile(entry["path"], entry["size"], entry.get("oid", ""), large.get("oid"))


def _stored_token() -> str | None:
    if found := os.environ.get("HF_TOKEN"):
        return found
    try:
        return hub_path("HF_TOKEN_PATH", "token").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
