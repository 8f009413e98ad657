"""Sends requests for tokens by the relay's HTTP client."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from hpcbench import retry_after, secret
from hpcbench.errors import EnvironmentFault, unreached
from hpcbench.oauth.keeper import TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions, ClientAuth, in_the_clear, is_address

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 2**20
"""Most bytes of an answer of the token server."""


_NO_AUTHORITY = frozenset({18, 19, 20, 21})
"""OpenSSL's codes of certificates whose authority is unknown."""


class Unsent(TokenFailed):
    """The request did not reach the server."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Transport(Protocol):
    """Sends one request."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None
    ) -> Reply:
        """The answer.

        Raises:
            Unsent: the request did not reach the server.
            TokenFailed: it may have, but there was no answer.
            TokenRefused: the server's certificate is not accepted.
        """


class Http:
    """aiohttp: certificates are verified, and redirects not followed, since a secret would go with them."""

    def __init__(self, options: AuthOptions) -> None:
        self._options = options

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None
    ) -> Reply:
        import aiohttp

        options, host = self._options, urlsplit(url).hostname
        out = asyncio.Event()
        """Whether the request begins to leave; until then there was no connection, or no tunnel."""
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=options.timeout),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trace_configs=[_noting(out)],
                ) as session,
                session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    **by_proxy(url, options.proxy),
                    ssl=_tls(options.ca_file),
                ) as answer,
            ):
                return Reply(
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    await _body(answer),
                )
        except (aiohttp.InvalidURL, UnicodeError) as error:  # the latter: a host's name
            raise TokenRefused(f"{url}: {error}") from None
        except aiohttp.ClientSSLError as error:
            raise TokenRefused(f"the token server {host}: {tls_fault(error, 'ca_file')}") from None
        except asyncio.TimeoutError:  # noqa: UP041 (3.10)
            if not out.is_set():
                why = f"no connection for {options.timeout:g} s"
                raise Unsent(f"the token server {host} cannot be reached: {why}") from None
            raise TokenFailed(
                f"the token server {host} has not answered for {options.timeout:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            why = _in_words(error)
            if not out.is_set():
                why = _of_proxy(error, url, options.proxy) or unreached(error) or why
                raise Unsent(f"the token server {host} cannot be reached: {why}") from None
            raise TokenFailed(f"the token server {host} broke off: {why}") from None


def _noting(out: asyncio.Event) -> aiohttp.TraceConfig:
    """Sets `out` before the first byte of a request leaves; a proxy's tunnel is not the request."""
    import aiohttp

    async def leaves(*_: object) -> None:
        out.set()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(leaves)
    return trace


def _in_words(error: Exception) -> str:
    """An error in one line; aiohttp gives one of an answer a status of its own."""
    import aiohttp

    if isinstance(error, aiohttp.ClientResponseError):
        error = ValueError(error.message)
    elif isinstance(error, aiohttp.ClientPayloadError):
        return "its answer is incomplete, or not as its headers say"
    return " ".join(str(error).split()) or type(error).__name__


def tls_fault(error: aiohttp.ClientSSLError, authorities: str) -> str:
    """Why there is no TLS connection, without Python's words around OpenSSL's.

    Args:
        error: what the client raised.
        authorities: where a user names the file of an authority.
    """
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = (
            f" (`{authorities}` names the file of your site's authority)"
            if cause.verify_code in _NO_AUTHORITY
            else ""
        )
        return f"its certificate is not accepted: {cause.verify_message.rstrip('.')}{remedy}"
    reason = getattr(cause, "reason", None)
    return f"no TLS connection: {str(reason or error).replace('_', ' ').lower()}"


def _of_proxy(error: Exception, url: str, chosen: str | None) -> str | None:
    """A proxy's refusal, with the name of the proxy."""
    import aiohttp

    if isinstance(error, aiohttp.ClientHttpProxyError):
        proxy = by_proxy(url, chosen)["proxy"].host
        return f"the proxy {proxy} answers {error.status} {error.message}"
    return None


def by_proxy(url: str, chosen: str | None = None) -> dict[str, Any]:
    """Arguments of an aiohttp request for the proxy before an address.

    aiohttp's own `trust_env` is not used: it also reads `~/.netrc`, and a password there would replace our
    token, or fail the request.

    Args:
        url: the address.
        chosen: the proxy; None: that of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.

    Raises:
        EnvironmentFault: the environment's proxy is no address.
    """
    import aiohttp
    from yarl import URL

    parts = urlsplit(url)
    if chosen is None and not proxy_bypass(parts.netloc):
        chosen = getproxies().get(parts.scheme)
    if not chosen:
        return {}
    try:
        proxy = URL(chosen if "://" in chosen else f"http://{chosen}")
    except ValueError:  # its text may have a password
        raise EnvironmentFault(
            f"{parts.scheme.upper()}_PROXY is no address", remedy="write http://HOST:PORT"
        ) from None
    if proxy.user is None:
        return {"proxy": proxy}
    secret.remember(proxy.password or "")
    user = aiohttp.BasicAuth(proxy.user, proxy.password or "")
    return {"proxy": proxy.with_user(None), "proxy_auth": user}


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """The body, up to `MOST_BYTES`."""
    found = bytearray()
    async for block in answer.content.iter_any():
        found += block
        if len(found) >= MOST_BYTES:
            break
    return bytes(found[:MOST_BYTES])


async def discover(
    options: AuthOptions, transport: Transport, *, allow_http: bool = False
) -> tuple[str, list[ClientAuth] | None]:
    """The token server of an issuer, and the client authentications that it names; None: it names none.

    OpenID's place of the metadata first, then that of RFC 8414, section 3, then the same two the other way
    round (section 5).

    Raises:
        TokenFailed: the metadata cannot be read now.
        TokenRefused: there is none, or it is another issuer's.
    """
    issuer = options.issuer or ""
    url = urlsplit(issuer)
    path = url.path.rstrip("/")
    openid, oauth = "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"
    seen, wrong, busy = [], "", None
    for place in dict.fromkeys((path + openid, oauth + path, openid + path, path + oauth)):
        address = urlunsplit((url.scheme, url.netloc, place, "", ""))
        reply = await transport.send("GET", address, {"Accept": "application/json"}, None)
        seen.append(f"{address} answers {reply.status}")
        if reply.status >= 500 or reply.status == 429:
            busy = busy or TokenFailed(seen[-1], wait=retry_after.seconds(reply.headers))
        found = _object(reply) if reply.status == 200 else None
        if found is None:
            continue
        if why := _unfit(found, issuer, allow_http=allow_http):
            wrong = wrong or f"{address} {why}"
            continue
        methods = found.get("token_endpoint_auth_methods_supported")
        return str(found["token_endpoint"]), methods if isinstance(methods, list) else None
    if wrong:
        raise TokenRefused(wrong)
    raise busy or TokenRefused(f"no metadata of issuer {issuer}: {'; '.join(seen)}")


def _unfit(found: Mapping[str, Any], issuer: str, *, allow_http: bool) -> str | None:
    """Why metadata cannot be used; None: they can."""
    if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
        return f"is of the issuer {found.get('issuer')!r:.200}"
    endpoint = found.get("token_endpoint")
    if not isinstance(endpoint, str) or not is_address(endpoint):
        return "names no token_endpoint"
    if in_the_clear(endpoint) and not allow_http:
        return f"names a token_endpoint without TLS: {endpoint:.200}"
    return None


def _object(reply: Reply) -> dict[str, Any] | None:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _tls(ca_file: str | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except (OSError, ssl.SSLError) as error:
        raise TokenRefused(f"ca_file {ca_file}: {error}") from None
