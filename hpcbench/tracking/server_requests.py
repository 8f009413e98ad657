"""Requests to a tracker's server with the standard library: bounded, retried, and direct.

A server on this machine is reached without any proxy, whatever the environment says; others by `https_proxy`
and `no_proxy`. Redirects are not followed: the data may be secret, and belong to one address.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hpcbench.errors import NO_NETWORK, EnvironmentFault, unreached
from hpcbench.oauth.bearer import Bearer

TRIES = 3
"""Most tries of a request while the server is unable to handle it."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


class Web:
    """An HTTP server.

    Args:
        url: its address.
        headers: sent with each request, e.g. `Authorization`.
        bearer: tokens for requests; None: they have none.
        timeout: longest wait for the server, seconds.
        ca_file: certificates of authorities beside the system's, PEM.
        name: its name in messages.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout: float = 60.0,
        ca_file: str | None = None,
        name: str = "the tracker",
        bearer: Bearer | None = None,
    ) -> None:
        self.url, self._headers, self._timeout, self._name = url.rstrip("/"), headers, timeout, name
        self._bearer = bearer
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EnvironmentFault(
                f"'{self.url}' is not an address of {name}",
                remedy="begin it with http:// or https://",
            )
        handlers: list[urllib.request.BaseHandler] = [_Stay()]
        if is_loopback(parts.hostname):
            handlers.append(urllib.request.ProxyHandler({}))
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_context(ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def json(self, method: str, path: str, data: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer.

        Raises:
            EnvironmentFault: the server cannot be reached.
        """
        body = json.dumps(data, ensure_ascii=False).encode() if data is not None else None
        status, answer = self.call(method, path, body, {"Content-Type": "application/json"})
        return status, _object(answer)

    def call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Status and body of an answer; tried again while the server is unable to handle the request.

        Raises:
            EnvironmentFault: the server cannot be reached, or there is no token for it.
        """
        bearer = self._bearer
        if bearer is None:
            return self._call(method, path, body, headers)
        return bearer.asked(
            lambda: self._call(method, path, body, {**bearer.headers(), **headers}),
            lambda answer: answer[0] == 401,
        )

    def _call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        for attempt in range(1, TRIES + 1):
            request = urllib.request.Request(  # noqa: S310 - the scheme was checked
                self.url + path, data=body, headers={**self._headers, **headers}, method=method
            )
            try:
                with self._opener.open(request, timeout=self._timeout) as reply:
                    return reply.status, reply.read()
            except urllib.error.HTTPError as error:
                with error:  # the error is also the open answer
                    if (error.code < 500 and error.code != 429) or attempt == TRIES:
                        return error.code, error.read()
            except (OSError, ValueError, http.client.HTTPException) as error:
                if attempt == TRIES or isinstance(error, ValueError) or _certificate(error):
                    raise self._fault(error) from error
            time.sleep(attempt)
        raise AssertionError("unreachable")

    def must(self, status: int, answer: Mapping[str, Any]) -> None:
        """Raise the fault for an answer that refuses.

        Raises:
            EnvironmentFault: the status is not 2xx.
        """
        if not 200 <= status < 300:
            said = answer.get("error") or answer.get("detail") or answer.get("message") or answer
            why = " ".join(str(said).split())[:200]
            remedy = "check the API key" if status in (401, 403) else None
            raise EnvironmentFault(f"{self.url} answers {status}: {why}", remedy=remedy)

    def _fault(self, error: Exception) -> EnvironmentFault:
        why = getattr(error, "reason", error)
        if _certificate(error):
            return EnvironmentFault(
                f"the certificate of {self.url} is not trusted: {why}",
                remedy="name the certificate of its authority: `ca_file: FILE.pem`",
            )
        if isinstance(why, TimeoutError):
            why = f"no answer in {self._timeout:g} s"
        else:
            why = unreached(error) or why
        return EnvironmentFault(
            f"{self.url} cannot be reached: {why}",
            remedy=f"check that {self._name} runs there; {NO_NETWORK}",
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise EnvironmentFault(
                f"ca_file {ca_file} cannot be used: {error}", remedy="name a PEM file"
            ) from error
    return context


def _certificate(error: Exception) -> bool:
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {"error": data[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {}
