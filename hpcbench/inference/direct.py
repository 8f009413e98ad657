"""The direct route: requests go from the client to the engine's own socket, past the wrapper.

The wrapper names the socket to a client that has its key, and goes on to watch the engine: the client reports
once a second, while it has requests there. The client sees no other answers than through the wrapper: if a
request breaks off before its answer begins, the wrapper answers it, with the status and the words of its own
proxy. It also answers requests that must not reach the engine, and those that come when there is no engine:
the client sends these through the wrapper. The wrapper masks errors of the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcbench.inference.http_client import Connections, HttpAnswer, NotConnected, WholeAnswer

PATH = "/v1/direct"
MASKED = f"{PATH}/error"
"""Route of the wrapper that gives an error without secrets."""

REPORT_SECONDS = 1.0
"""Interval of reports to the wrapper."""

IDLE_SECONDS = 3.0
"""Longest idle time of a connection that is used again: engines' servers close them after 5 s, and a request
sent at that moment is lost."""

_STOPPED_SECONDS = (
    5.0  # so long between two reports: this process was stopped, and perhaps the engine, too
)
_PATIENCE = 10.0  # seconds for an answer of the wrapper

Rules = Callable[[bytes], bytes | None]
"""Gives a request's body as the engine must get it; None: the wrapper must answer the request."""


@dataclass(slots=True)
class _Counts:
    """Counts since the last report."""

    codes: Counter[int] = field(default_factory=Counter)
    served: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    first_bytes: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "codes": dict(self.codes),
            "served": self.served,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "first_bytes": self.first_bytes,
        }


class Direct:
    """Connections to the engine of one load.

    Args:
        wrapper: connections to the wrapper.
        offer: the wrapper's answer to `POST /v1/direct`.
        rules: makes the rules for requests' bodies from that answer.
    """

    def __init__(
        self,
        wrapper: Connections,
        offer: Mapping[str, Any],
        rules: Callable[[Mapping[str, Any]], Rules],
    ) -> None:
        self._wrapper = wrapper
        self._socket, self._body_limit = str(offer["socket"]), int(offer["body_limit"])
        self._rules = rules(offer)
        self.parses = bool(offer["checked"])
        """Whether `prepared` parses the body, which takes milliseconds for one with images."""
        self._engine = Connections(self._socket, {"Host": "engine"}, idle_seconds=IDLE_SECONDS)
        self._client = secrets.token_hex(8)
        self.open = True
        """Whether requests may go to the engine; otherwise the wrapper answers them."""
        self._in_flight = self._reported = 0
        self._last_byte = 0
        """`time.monotonic_ns()` of the engine's last byte, or of the first request after a pause."""
        self._counts = _Counts()
        self._reporting: asyncio.Task[None] | None = None

    async def reachable(self) -> bool:
        """Whether the engine answers on its socket; starts the reports if so."""
        with contextlib.suppress(OSError, ValueError, asyncio.TimeoutError):
            async with self._engine.ask("GET", "/health", None, _PATIENCE) as answer:
                await answer.read()
                if answer.status == 200:
                    self._reporting = asyncio.ensure_future(self._report_regularly())
                    return True
        self.close()
        return False

    async def shut(self) -> None:
        """Send no more requests to the engine; those in flight are reported until they end."""
        self.open = False
        await self._report()

    async def leave(self) -> None:
        """Report what is not reported yet, then close."""
        if self._has_news():
            await self._report()
        self.close()

    def close(self) -> None:
        """End the reports, and close idle connections."""
        self.open = False
        if self._reporting is not None:
            self._reporting.cancel()
        self._engine.close()

    def prepared(self, body: bytes) -> bytes | None:
        """A request's body as the engine must get it; None: the wrapper must answer the request."""
        return self._rules(body) if self.open and len(body) <= self._body_limit else None

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, target: str, body: bytes, seconds: float
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request to the engine, see `Connections.ask`; the body is as `prepared` gives it.

        If it breaks off before its answer begins, the answer is the wrapper's: 503 with code `no_model` and
        the reason if the engine is gone, else 502.

        Raises:
            NotConnected: the wrapper is gone.
            Broken: the answer broke off, here or during reading.
            asyncio.TimeoutError: `seconds` passed, here or during reading.
        """
        until = time.monotonic() + seconds
        begin, answer, given, why = self._begin(len(body)), None, False, ""
        try:
            async with self._engine.ask(method, target, body, seconds) as answer:
                shown = answer if answer.status < 400 else await self._masked(answer, until)
                given = True
                yield shown
        except ConnectionError as error:
            if given:
                raise
            if isinstance(error, NotConnected):  # the socket is gone with its engine
                self.open = False
            why = str(error) or type(error).__name__
        finally:
            self._end(begin, answer if given else None)
        if not given:
            report, left = self._said(broken=why[:1000]), max(0.0, until - time.monotonic())
            async with self._wrapper.ask("POST", PATH, report, left) as reason:
                yield reason

    async def _masked(self, answer: HttpAnswer, until: float) -> HttpAnswer:
        """An error of the engine without secrets: it may show the engine's environment."""
        body = await answer.read()
        left = max(0.0, until - time.monotonic())
        async with self._wrapper.ask("POST", MASKED, body, left) as masked:
            text = await masked.read()
            return WholeAnswer(answer, text if masked.status == 200 else b"")

    def _begin(self, size: int) -> int:
        """Count a request with a body of this size; returns `time.monotonic_ns()`."""
        begin = time.monotonic_ns()
        if not self._in_flight:
            self._last_byte = begin
        self._in_flight += 1
        self._counts.bytes_in += size
        return begin

    def _end(self, begin: int, answer: HttpAnswer | None) -> None:
        """Count a request's answer, if it has one."""
        self._in_flight -= 1
        if answer is not None:
            self._last_byte = max(self._last_byte, answer.heard_at)
            counts = self._counts
            counts.codes[answer.status] += 1
            counts.served += answer.ended_at is not None
            counts.bytes_out += answer.size
            if answer.first_at is not None:
                counts.first_bytes.append((answer.first_at - begin) / 1e9)

    def _has_news(self) -> bool:
        return bool(self._in_flight or self._reported or self._counts.codes)

    async def _report_regularly(self) -> None:
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(REPORT_SECONDS)
            if time.monotonic() - asleep > _STOPPED_SECONDS:
                self._last_byte = time.monotonic_ns()
            if self._has_news():
                await self._report()

    async def _report(self) -> None:
        """Report to the wrapper; when it has no engine for requests, or is gone, none is sent any more."""
        report, self._counts, self._reported = self._said(), _Counts(), self._in_flight
        try:
            async with self._wrapper.ask("POST", PATH, report, _PATIENCE) as answer:
                await answer.read()
                self.open = self.open and answer.status == 200
        except NotConnected:
            self.open = False
        except (OSError, asyncio.TimeoutError):  # the next report counts
            pass

    def _said(self, broken: str | None = None) -> bytes:
        """A report, of counts too unless a connection is broken."""
        counts = {} if broken is not None else self._counts.to_json()
        report = {
            "client": self._client,
            "socket": self._socket,
            "in_flight": self._in_flight,
            "silent": self._silent(),
            "broken": broken,
            **counts,
        }
        return json.dumps(report).encode()

    def _silent(self) -> float:
        """Seconds since the engine's last byte; 0 without requests."""
        heard = (connection.heard_at for connection in self._engine.busy)
        self._last_byte = max(self._last_byte, *heard, 0)
        return (time.monotonic_ns() - self._last_byte) / 1e9 if self._in_flight else 0.0
