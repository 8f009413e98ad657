"""`python -m hpcbench.engines.relay`: OpenAI's chat completions on a Unix socket, forwarded elsewhere.

The relay changes the model's name in a request and adds the key; an answer passes byte for byte, as it comes.
An answer that breaks off there breaks off here: it never looks complete. Redirects are not followed, because
the key would go with them; certificates are verified; `HTTPS_PROXY` and `NO_PROXY` are honoured.

With OAuth2 (`auth` of the options) a keeper holds the token. An answer of 401 drops it, and the request goes
out once more with its successor; the second answer passes, whatever it is.

It listens from the start: while it waits for the endpoint or for a token, its figures can be asked for and it
ends in order. `/health` answers 503 until it can relay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp
from aiohttp import web

from hpcbench import retry_after, secret
from hpcbench.engines.chat import ApiError
from hpcbench.engines.remote import RemoteOptions
from hpcbench.errors import HpcbenchError, unreached
from hpcbench.oauth import token_metrics
from hpcbench.oauth.keeper import Keeper, TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.oauth.token_messages import words
from hpcbench.oauth.token_server import source_of
from hpcbench.oauth.transport import by_proxy, tls_fault

PATIENCE = 60.0
"""Longest wait for an unreachable endpoint, seconds."""

_LOG = logging.getLogger("hpcbench.remote")
_OF_STREAM_OPTIONS = ("include_usage", "include_obfuscation")
"""The stream options of OpenAI's API."""
_NOT_PASSED = frozenset(
    {
        "connection", "content-length", "date", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "server", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers of an answer that belong to its connection, or are private to the endpoint."""


_JSON = {"Content-Type": "application/json"}


class EndpointFailed(Exception):
    """The endpoint is unusable; the message has the reason."""


def main(argv: Sequence[str] | None = None) -> None:
    """Relay until SIGTERM; an unusable endpoint ends in one line and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench.engines.relay")
    parser.add_argument("--uds", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    args = parser.parse_args(argv)
    try:
        serve(RemoteOptions(**args.options), args.name, args.uds)
    except EndpointFailed as error:
        sys.exit(f"the endpoint cannot be used: {error}")


def serve(options: RemoteOptions, name: str, socket: str) -> None:
    """Relay until SIGTERM, as soon as the endpoint has answered once.

    Raises:
        EndpointFailed: it does not answer, or refuses us.
    """
    try:
        key, keeper = _credential(options)
        relay = Relay(options, name, key, keeper)
    except HpcbenchError as error:
        raise EndpointFailed(str(error)) from None
    web.run_app(
        relay.application(),
        path=socket,
        backlog=2048,  # as the wrapper in front of it
        print=None,
        access_log=None,
        handler_cancellation=True,  # a client that leaves ends its request at the endpoint, too
        shutdown_timeout=2,
        keepalive_timeout=600,
    )
    if not relay.ready and keeper is not None:  # nothing asks for its last figures
        _LOG.warning(token_metrics.line(keeper.look()))
    if relay.failure is not None:
        raise relay.failure


def _credential(options: RemoteOptions) -> tuple[str, Keeper | None]:
    """The fixed key, or the keeper of tokens.

    Raises:
        HpcbenchError: a secret is missing.
    """
    auth = options.auth or AuthOptions(type="bearer")
    if auth.type == "jwt":
        source = source_of(auth, allow_http=options.allow_http, say=_LOG.warning)
        return "", Keeper(source)
    if auth.type == "none":
        return "", None
    said = os.environ.get("API_KEY", "") if auth.token is None else secret.reveal(auth.token)
    return said.strip(), None


class Relay:
    """One endpoint under one local name."""

    def __init__(
        self, options: RemoteOptions, name: str, key: str, keeper: Keeper | None = None
    ) -> None:
        self.options, self.name = options, name
        self._keeper = keeper
        self._proxy = by_proxy(options.base_url)
        self._headers = {**options.headers, "Accept-Encoding": "identity"}
        if key:
            secret.remember(key)
            self._headers["Authorization"] = f"Bearer {key}"
        self._answers: Counter[str] = Counter()
        """Status of the endpoint's answers, or the code of our own error → how many."""
        self._session: aiohttp.ClientSession
        self.ready = False
        """Whether the endpoint has answered."""
        self.failure: Exception | None = None
        """Why it ends by itself."""

    @contextlib.asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keep a token while inside, where one is needed."""
        async with contextlib.AsyncExitStack() as kept:
            if self._keeper is not None:
                await kept.enter_async_context(self._keeper.running())
            yield

    def session(self) -> aiohttp.ClientSession:
        """Connections to the endpoint, one for each request."""
        silence = self.options.timeout
        return aiohttp.ClientSession(
            # many servers close idle connections after 5 s; a request sent at that moment is lost
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=silence),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=2**20,
        )

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Wait until the endpoint answers, and before that for a token as long as a request would.

        Raises:
            EndpointFailed: it refuses us, or does not exist; there is no token.
        """
        try:
            await self._token(self.options.timeout)
        except TokenFailed as error:
            raise EndpointFailed(str(error)) from None
        url = f"{self.options.base_url}/models"
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + min(PATIENCE, self.options.timeout), 0.5
        rejected = False
        while True:
            try:
                token = await self._token(max(0.0, deadline - loop.time()))
                async with session.get(
                    url, headers=_authorization(token), allow_redirects=False, **self._proxy
                ) as answer:
                    if answer.status == 401 and self._keeper is not None and token and not rejected:
                        rejected = True
                        self._keeper.reject(token)
                        continue
                    said = _message(await answer.read()) if answer.status in (401, 403) else ""
                    why = _unusable(answer, said, of_keeper=self._keeper is not None)
                    if why is None:
                        return
            except TokenFailed as error:
                raise EndpointFailed(str(error)) from None
            except aiohttp.ClientSSLError as error:  # the address last: screens cut long lines
                raise EndpointFailed(f"{tls_fault(error, 'SSL_CERT_FILE')}: {url}") from None
            except aiohttp.InvalidURL as error:
                raise EndpointFailed(f"{url}: {error}") from None
            except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:  # noqa: UP041 (3.10)
                reached, why = unreached(error), str(error) or type(error).__name__
                if reached is not None and loop.time() > deadline:
                    raise EndpointFailed(f"{url} cannot be reached: {reached} ({why})") from None
            if loop.time() > deadline:
                raise EndpointFailed(f"{url}: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 8)

    def application(self) -> web.Application:
        """The server."""
        app = web.Application(client_max_size=0)  # the wrapper already has its limit
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.cleanup_ctx.append(self._connected)
        return app

    async def _connected(self, app: web.Application) -> AsyncIterator[None]:
        async with self.keeping(), self.session() as self._session:
            looking = asyncio.ensure_future(self._become_ready())
            yield
            looking.cancel()
            await asyncio.wait({looking})

    async def _become_ready(self) -> None:
        try:
            await self.look(self._session)
            self.ready = True
        except Exception as error:  # noqa: BLE001 - `serve` raises it
            self.failure = error
            asyncio.get_running_loop().call_soon(_end)

    async def _health(self, request: web.Request) -> web.Response:
        if not self.ready:
            return web.json_response({"status": "waits for the endpoint"}, status=503)
        return web.json_response({"status": "ok"})

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self.name, "object": "model", "owned_by": "remote"}
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, request: web.Request) -> web.Response:
        lines = (
            f'hpcbench_remote_answers_total{{code="{code}"}} {count}\n'
            for code, count in sorted(self._answers.items())
        )
        text = "".join(lines)
        if self._keeper is not None:
            text += token_metrics.text(self._keeper.look())
        return web.Response(text=text)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = self._translate(await request.read())
            return await self._exchange(request, body)
        except ApiError as error:
            self._answers[error.code] += 1
            return web.json_response(error.to_json(), status=error.status)

    def _translate(self, body: bytes) -> bytes:
        """The request for the endpoint.

        Raises:
            ApiError: it is no chat request for this model, or names images outside the request.
        """
        try:
            ask = json.loads(body)
        except ValueError as error:
            raise ApiError(400, f"the body is not JSON: {error}", "invalid_request") from None
        if not isinstance(ask, dict):
            raise ApiError(400, "the body is not a JSON object", "invalid_request")
        if ask.get("model") != self.name:
            text = f"the model '{ask.get('model')}' does not exist (there is: {self.name})"
            raise ApiError(404, text, "model_not_found")
        if any(not url.startswith("data:") for url in _image_urls(ask)):
            text = "an image must be a data URI: the endpoint cannot read files of this machine"
            raise ApiError(400, text, "media_not_allowed")
        ask["model"] = self.options.model
        if "max_tokens" in ask:
            ask[self.options.max_tokens_name] = ask.pop("max_tokens")
        if self.options.strict and isinstance(said := ask.get("stream_options"), dict):
            ask["stream_options"] = {k: v for k, v in said.items() if k in _OF_STREAM_OPTIONS}
        return json.dumps(ask).encode()

    async def _exchange(self, request: web.Request, body: bytes) -> web.StreamResponse:
        passed: web.StreamResponse | None = None
        try:
            async with await self._send(body) as answer:
                if 300 <= answer.status < 400:
                    raise ApiError(502, _redirected(answer), "endpoint_redirects")
                if self._keeper is not None and answer.status >= 400:
                    return await self._refusal(answer)
                passed = web.StreamResponse(status=answer.status, headers=_headers(answer))
                passed.content_length = answer.content_length
                await passed.prepare(request)
                clean = self._cleaner(answer)
                async for block in answer.content.iter_any():
                    await passed.write(clean(block) if clean is not None else block)
                await passed.write_eof()
                return passed
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:  # noqa: UP041 (3.10)
            if passed is not None:
                return self._cut(request, passed, error)
            status, code, said = self._silence(error)
            raise ApiError(status, f"the endpoint {said}", code) from None

    def _silence(self, error: Exception) -> tuple[int, str, str]:
        """Status, code and words for an endpoint that gave no answer."""
        if isinstance(error, asyncio.TimeoutError):  # aiohttp's timeouts are too
            return 504, "endpoint_timeout", f"sent nothing for {self.options.timeout:g} s"
        why = error or type(error).__name__
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)):
            return 502, "endpoint_unreachable", f"cannot be reached: {why}"
        return 502, "endpoint_broke_off", f"gave no answer to the request: {why}"

    async def _send(self, body: bytes) -> aiohttp.ClientResponse:
        """The endpoint's answer to a request; without a usable token the request waits for one.

        Raises:
            ApiError: there is no token.
        """
        if self._keeper is None:
            return await self._post(body, _JSON)
        token = self._keeper.ready() or await self._token_or_error()
        answer = await self._post(body, {**_JSON, **_authorization(token)})
        if answer.status != 401:
            self._keeper.accept(token)
            return answer
        self._keeper.reject(token)
        again = self._keeper.ready()
        if again == token:  # it is new, and so was its predecessor: the endpoint rejects them all
            return answer
        answer.close()
        again = again or await self._token_or_error()
        answer = await self._post(body, {**_JSON, **_authorization(again)})
        if answer.status != 401:
            self._keeper.accept(again)
        return answer

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        answer = await self._session.post(
            f"{self.options.base_url}/chat/completions",
            data=body,
            headers=headers,
            allow_redirects=False,
            **self._proxy,
        )
        self._answers[str(answer.status)] += 1
        return answer

    async def _token(self, patience: float) -> str:
        """The token; empty: requests have none.

        Raises:
            TokenFailed: there was none for so long, seconds.
        """
        return "" if self._keeper is None else await self._keeper.wait(patience)

    async def _token_or_error(self) -> str:
        try:
            return await self._token(self.options.timeout)
        except TokenRefused as error:
            raise ApiError(401, f"no token for the endpoint: {error}", "token_refused") from None
        except TokenFailed as error:
            raise ApiError(
                503, f"no token for the endpoint: {error}", "token_unavailable"
            ) from None

    def _cleaner(self, answer: aiohttp.ClientResponse) -> Callable[[bytes], bytes] | None:
        """Hides the token, plain or quoted, in blocks of an answer, at their length; None: there is none."""
        if self._keeper is None:
            return None
        stars = _starred(answer.request_info.headers["Authorization"].removeprefix("Bearer "))
        if len(stars) == 1:  # of most tokens, whose characters need no quotes
            return lambda block: block.replace(*stars[0])

        def clean(block: bytes) -> bytes:
            for one, hidden in stars:
                block = block.replace(one, hidden)
            return block

        return clean

    async def _refusal(self, answer: aiohttp.ClientResponse) -> web.Response:
        """An error of the endpoint, without tokens that it repeats."""
        body = await answer.read()
        masked = secret.mask(body.decode("utf-8", "surrogateescape"))
        return web.Response(
            status=answer.status,
            headers=[(name, secret.mask(value)) for name, value in _headers(answer)],
            body=masked.encode("utf-8", "surrogateescape"),
        )

    def _cut(
        self, request: web.Request, passed: web.StreamResponse, error: Exception
    ) -> web.StreamResponse:
        """Close the connection without the end of an answer."""
        self._answers["broken"] += 1
        _LOG.warning("an answer of the endpoint is incomplete: %s", error or type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
        return passed


@functools.lru_cache(maxsize=4)
def _starred(token: str) -> list[tuple[bytes, bytes]]:
    """The forms of a token, the longest first, each with what takes its place."""
    forms = {one.encode() for one in (token, *secret.quoted(token))}
    return [(one, b"*" * len(one)) for one in sorted(forms, key=len, reverse=True)]


def _end() -> None:
    """End the server as SIGTERM does."""
    raise web.GracefulExit


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _message(body: bytes) -> str:
    """An error's words in one line, without secrets; empty: there are none."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    error = found.get("error", found.get("message")) if isinstance(found, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    return words(said if isinstance(said, str) else body.decode(errors="replace"))


def _unusable(answer: aiohttp.ClientResponse, said: str, *, of_keeper: bool) -> str | None:
    """Reason why an endpoint with this answer is unusable now; None if it is usable.

    Args:
        answer: to a request for its models.
        said: its words, if it refuses us.
        of_keeper: whether the request had a token of a token server.

    Raises:
        EndpointFailed: it will not become usable.
    """
    if answer.status in (200, 404, 405):  # not every endpoint lists its models
        return None
    said = said and f": {said}"
    if answer.status in (401, 403) and of_keeper:
        what = "a new token of the token server (look at `scope` and `audience` in `auth`)"
        raise EndpointFailed(f"{answer.url} answers {answer.status} to {what}{said}")
    if answer.status in (401, 403):
        key = (
            "the key in `API_KEY`"
            if "Authorization" in answer.request_info.headers
            else "a request without a key"
        )
        raise EndpointFailed(
            f"{answer.url} answers {answer.status} to {key} (set `API_KEY` in the model's `env`){said}"
        )
    if 300 <= answer.status < 400:
        raise EndpointFailed(_redirected(answer))
    return f"it answers {answer.status} {answer.reason}"


def _redirected(answer: aiohttp.ClientResponse) -> str:
    where = words(answer.headers.get("Location", "nowhere").partition("?")[0])
    remedy = "set `base_url` to the final address"
    return f"{answer.url} redirects to {where}, and redirects are not followed ({remedy})"


def _headers(answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    """Headers to pass on. A date would be read by another clock than the endpoint's, so seconds go on."""
    said = {name.lower(): value for name, value in answer.headers.items()}
    passed = []
    for name, value in answer.headers.items():
        low = name.lower()
        if low in _NOT_PASSED:
            continue
        until = low == "retry-after" or ("ratelimit" in low and "reset" in low)
        if until and retry_after.is_moment(value):
            value = f"{retry_after.reset(value, said):.3f}".rstrip("0").rstrip(".")
        passed.append((name, value))
    return passed


def _image_urls(ask: Mapping[str, Any]) -> Iterator[str]:
    messages = ask.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "image_url":
                image = part.get("image_url")
                yield str(image.get("url", "") if isinstance(image, dict) else image)


if __name__ == "__main__":
    main()
