"""Checks of request headers, and the headers of every answer; pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie

from hpcbench.portal.faults import PortalFault, bad_request, refused

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers from ASGI: names in lower case."""

LONGEST = 32 * 1024
"""Most bytes of all headers of a request together."""

MOST = 64
"""Most headers of a request."""

ONCE = frozenset((
    "host", "origin", "authorization", "cookie", "referer", "x-hpcbench", "content-length", "content-type",
    "content-encoding", "transfer-encoding", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "if-match",
    "if-none-match", "last-event-id", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-for",
))  # fmt: skip
"""Decisive headers: of two values, one reader could use the first and another the last."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9._-]{0,252}))(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"https?://([^/?#@\s]+)")

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Security policy of our pages: nothing from other origins, no inline scripts, no eval."""

ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-dns-prefetch-control": "off",
}
"""Headers of every answer."""


def read(pairs: Pairs) -> dict[str, str]:
    """Headers by name.

    Raises:
        PortalFault: the headers are too many or too long, or a header of `ONCE` occurs twice.
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
        raise PortalFault(431, "bad_request", "the request has too many or too long headers")
    twice = sorted(key for key in ONCE if seen[key] > 1)
    if twice:
        raise bad_request(f"the request has the header {twice[0]} twice")
    return found


def check_host(host: str | None, further: frozenset[str]) -> None:
    """Refuse foreign host names: a page's own name may point to this address (DNS rebinding).

    Args:
        host: the `Host` header.
        further: allowed names besides the loopback's, with or without port.

    Raises:
        PortalFault: the header is missing or malformed, or the name is not allowed.
    """
    name = (host or "").lower()
    parts = _HOST.fullmatch(name)
    if parts is None:
        raise bad_request("the Host header is missing or malformed")
    bare = parts[1].rstrip(".")
    if bare in {"localhost", "127.0.0.1", "[::1]"} or bare.endswith(".localhost"):
        return
    if bare not in further and name not in further:
        raise PortalFault(
            400, "refused", "the portal does not accept this host name",
            "use the address that `hpcbench portal url` prints",
        )  # fmt: skip


def check_site(headers: Mapping[str, str], here: frozenset[str], *, strict: bool = False) -> None:
    """Refuse requests that a page of another site caused.

    Another port of the same host is another site, too: browsers send cookies to all ports.

    Args:
        headers: headers of the request.
        here: `host[:port]` under which the browser may know the portal.
        strict: whether the browser must give the request's origin (WebSockets).

    Raises:
        PortalFault: the request comes from another site.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        raise refused("the request comes from a page of another site")
    if origin is None:
        if strict and site is None:
            raise refused("the Origin header is missing")
        return
    # Our forms send `null`, because their pages have `no-referrer`; then `Sec-Fetch-Site` decides.
    if origin == "null" and site is not None:
        return
    parts = _ORIGIN.fullmatch(origin.lower())
    if parts is None or without_port_80(parts[1]) not in {without_port_80(one) for one in here}:
        raise refused("the request comes from a page of another site")


def without_port_80(host: str) -> str:
    """A host without the default port, which browsers omit."""
    return re.sub(r":(80|443)$", "", host.lower())


def cookies(header: str | None) -> dict[str, str]:
    """Cookies by name; empty if the header is malformed."""
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(header or "")
    except CookieError:
        return {}
    return {name: one.value for name, one in jar.items()}


def finish(pairs: Pairs, *, api: bool, identity: str) -> list[tuple[bytes, bytes]]:
    """An answer's headers, with the headers of all answers.

    Args:
        pairs: headers from the route.
        api: whether the answer is data, which no cache may keep.
        identity: id of the request.
    """
    given = list(pairs)
    said = {name.lower(): value.decode("latin-1") for name, value in given}
    setting = {**ALWAYS, "x-request-id": identity}
    # A report's own page has another protection: a browser sandbox without our origin.
    own = said.get(b"content-security-policy", "")
    words = {word.strip(";") for word in own.split()}
    locked_up = "sandbox" in words and "allow-same-origin" not in words
    setting["content-security-policy"] = own if locked_up else CSP
    if api:
        kind, wanted = said.get(b"content-type", ""), said.get(b"cache-control", "")
        streamed = kind.startswith("text/event-stream")
        # Images of samples are many, and change only with their bytes: browsers may keep them.
        kept = kind.startswith("image/") and wanted.startswith("private, ")
        default = "no-store, no-transform" if streamed else "no-store"
        setting["cache-control"] = wanted if kept else default
    left = [pair for pair in given if pair[0].lower().decode("latin-1") not in setting]
    return [*left, *((name.encode(), value.encode("latin-1")) for name, value in setting.items())]
