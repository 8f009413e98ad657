"""What headers of requests are believed, and which ones every answer carries; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie

from hpcbench.portal.faults import PortalFault

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers as ASGI gives them: names in small letters."""

LONGEST = 32 * 1024
"""Bytes of all headers of a request together."""

MOST = 64
"""Headers of a request."""

ONCE = frozenset((
    "host", "origin", "authorization", "cookie", "referer", "x-hpcbench", "content-length", "content-type",
    "content-encoding", "transfer-encoding", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "if-match",
    "if-none-match", "last-event-id", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for",
))  # fmt: skip
"""Headers that decide something: sent twice, one reader could believe the first and another the last."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9._-]{0,252}))(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"https?://([^/?#@\s]+)")

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""What a page of ours may do: nothing from elsewhere, no inline scripts, no eval."""

ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-dns-prefetch-control": "off",
}
"""On every answer."""


def read(pairs: Pairs) -> dict[str, str]:
    """Headers by name, those of `ONCE` at most once.

    Raises:
        PortalFault: there are too many, they are too long, or one that decides something comes twice.
    """
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    size = 0
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        seen[key] += 1
        size += len(name) + len(value)
        found[key] = value.decode("latin-1")
    if size > LONGEST or sum(seen.values()) > MOST:
        raise PortalFault(431, "bad_request", "too many or too long headers")
    twice = sorted(key for key in ONCE if seen[key] > 1)
    if twice:
        raise PortalFault(400, "bad_request", f"header {twice[0]} is there twice")
    return found


def check_host(host: str | None, further: frozenset[str]) -> None:
    """Refuse names under which no portal is reached: a page that had its own name point here (DNS rebinding).

    Args:
        host: the `Host` header.
        further: names beyond those of the loopback, with or without port.

    Raises:
        PortalFault: it is missing, malformed or another's.
    """
    name = (host or "").lower()
    parts = _HOST.fullmatch(name)
    if parts is None:
        raise PortalFault(400, "bad_request", "the Host header is missing or malformed")
    bare = parts[1].rstrip(".")
    if bare in {"localhost", "127.0.0.1", "[::1]"} or bare.endswith(".localhost"):
        return
    if bare not in further and name not in further:
        raise PortalFault(
            400, "refused", "the portal is not reached under this name",
            "use the address that `hpcbench portal url` prints",
        )  # fmt: skip


def check_site(headers: Mapping[str, str], here: frozenset[str], *, strict: bool = False) -> None:
    """Refuse requests that a page of another site had the browser make.

    Another port of the same host is another site, too: cookies go there all the same.

    Args:
        headers: of the request.
        here: `host[:port]` under which the browser may know us.
        strict: whether the browser must say where the request comes from (WebSockets).

    Raises:
        PortalFault: it comes from elsewhere.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        raise PortalFault(403, "refused", "a page of another site asks")
    if origin is None:
        if strict and site is None:
            raise PortalFault(403, "refused", "the Origin header is missing")
        return
    # A form of ours sends `null`, as its page has `no-referrer`; the browser's own word then decides.
    if origin == "null" and site is not None:
        return
    parts = _ORIGIN.fullmatch(origin.lower())
    if parts is None or without_port_80(parts[1]) not in {without_port_80(one) for one in here}:
        raise PortalFault(403, "refused", "a page of another site asks")


def without_port_80(host: str) -> str:
    """A host without the port that browsers leave out."""
    return re.sub(r":(80|443)$", "", host.lower())


def cookies(header: str | None) -> dict[str, str]:
    """Cookies by name; none where the header is malformed."""
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header or "")
    except CookieError:
        return {}
    return {name: one.value for name, one in jar.items()}


def finish(pairs: Pairs, *, api: bool, identity: str) -> list[tuple[bytes, bytes]]:
    """An answer's headers, with those that all answers carry.

    Args:
        pairs: what the route gave.
        api: whether it is data: then no cache may keep it.
        identity: of the request.
    """
    given = list(pairs)
    said = {name.lower(): value.decode("latin-1") for name, value in given}
    setting = {**ALWAYS, "x-request-id": identity}
    # A report's own page is locked up by the browser instead, without our origin.
    own = said.get(b"content-security-policy", "")
    words = {word.strip(";") for word in own.split()}
    locked_up = "sandbox" in words and "allow-same-origin" not in words
    setting["content-security-policy"] = own if locked_up else CSP
    if api:
        kind, wanted = said.get(b"content-type", ""), said.get(b"cache-control", "")
        streamed = kind.startswith("text/event-stream")
        # Images of samples are many, and the same for as long as their bytes are.
        kept = kind.startswith("image/") and wanted.startswith("private, ")
        default = "no-store, no-transform" if streamed else "no-store"
        setting["cache-control"] = wanted if kept else default
    left = [pair for pair in given if pair[0].lower().decode("latin-1") not in setting]
    return [*left, *((name.encode(), value.encode("latin-1")) for name, value in setting.items())]
