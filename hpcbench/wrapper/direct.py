"""The direct route: requests that clients on this node send to the engine's own socket, past the wrapper.

A client with the key asks for the socket on the wrapper's own Unix socket. Then it reports once a second
while it has requests at the engine: the watchdog judges the engine's silence by these reports, and the counts
of requests include them. The engine's socket is in two folders of mode 0700, so only this user can open it;
over TCP the wrapper does not name it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

TRUSTED_SECONDS = 5.0
"""Age at which a client's last report says nothing any more: the client may have been stopped."""

NEXT_REPORT_SECONDS = 1.5
"""Time within which each client with requests reports once."""

JUST_NOW_SECONDS = 0.2
"""Age of a report that is as good as one of now: a client reports right before it unloads an engine."""

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Report(BaseModel):
    """Body of `POST /v1/direct`. Counts are those since the client's last report."""

    model_config = ConfigDict(extra="forbid")

    client: str = Field(min_length=1, max_length=64)
    """A random name, one for each client."""
    socket: str | None = None
    """The engine's socket that the client uses; None: it asks for one."""
    in_flight: Count = 0
    """Its requests at the engine now."""
    silent: Seconds = 0.0
    """Seconds for which no byte has come from the engine while requests were there."""
    codes: Mapping[int, Count] = Field(default_factory=dict)
    """Answers by HTTP status."""
    served: Count = 0
    """Complete answers."""
    bytes_in: Count = 0
    """Bytes of requests' bodies."""
    bytes_out: Count = 0
    """Bytes of answers' bodies."""
    first_bytes: tuple[Seconds, ...] = ()
    """Seconds from a request to the first byte of its answer's body."""
    broken: str | None = Field(default=None, max_length=1000)
    """Why a connection to the engine broke before an answer began; the client asks what became of the
    engine."""


@dataclass(frozen=True, slots=True)
class _InFlightReport:
    """A client's last word on its requests in flight."""

    at: float
    in_flight: int
    silent: float


class DirectClients:
    """Last reports of the clients on their requests in flight at one engine."""

    def __init__(self) -> None:
        self._socket: str | None = None
        self._offers = 0  # clients that got it
        self._said: dict[str, _InFlightReport] = {}
        self._heard: dict[str, float] = {}
        """When each client reported last."""

    def begin(self) -> None:
        """An engine begins: reports on earlier ones do not count."""
        self._socket, self._offers = None, 0
        self._said.clear()
        self._heard.clear()

    def offered(self, socket: str) -> None:
        """A client got the engine's socket."""
        self._socket = socket
        self._offers += 1

    def take(self, report: Report) -> None:
        """Keep a client's report; one without requests ends its part."""
        if report.socket is None or report.socket != self._socket:
            return
        now = self._heard[report.client] = time.monotonic()
        self._said.pop(report.client, None)
        if report.in_flight:
            self._said[report.client] = _InFlightReport(now, report.in_flight, report.silent)

    def forget(self) -> None:
        """Forget all reports: this process was stopped, and its clients perhaps, too."""
        self._said.clear()

    def all_heard(self, since: float) -> bool:
        """Whether each client reported since then: another one may have requests that are younger."""
        return sum(at >= since for at in self._heard.values()) >= self._offers

    @property
    def in_flight(self) -> int:
        """Requests at the engine."""
        return sum(one.in_flight for one in self._trusted())

    @property
    def silent(self) -> float:
        """Seconds for which the engine has sent nothing to any client, at the clients' last reports."""
        return min((one.silent for one in self._trusted()), default=0.0)

    def _trusted(self) -> list[_InFlightReport]:
        since = time.monotonic() - TRUSTED_SECONDS
        self._said = {name: one for name, one in self._said.items() if one.at >= since}
        return list(self._said.values())
