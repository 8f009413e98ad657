"""Rate limits of a gateway: what it says in its answers, and when the next request may go.

A gateway says its limits in three ways, and each is heeded:

- an answer 429 with `Retry-After` (seconds or a date; RFC 9110, section 10.2.3) or `retry-after-ms`, or 503
  with `Retry-After`: no request goes out before;
- `x-ratelimit-limit-…`, `-remaining-…` and `-reset-…` for `requests` and `tokens`, and other spellings
  (`limit_headers`): a request that is more than what remains waits until enough has come back;
- an answer 429 that says no more, or always "soon": pauses that double.

After a refusal one request goes first. Then the requests without an answer's head may double with each
round, up to half of what they were at the refusal, and grow by one a round beyond: as TCP does after a loss.

Moments are seconds of the clock of the machine's boot: processes of one node share it, so one file tells
all of them that the gateway refuses (`Shared`).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench import retry_after
from hpcbench.inference import limit_headers

LONGEST_PAUSE = 3600.0
"""Longest pause until the gateway is asked again, seconds, whatever it says."""

_FIRST_PAUSE, _LONGEST_BACK_OFF = 0.5, 60.0  # seconds; without a word of the gateway
_BELIEVED = 10  # refusals in a row; further ones lead to longer pauses than the gateway asks for
_LATER = 0.1  # share of a pause, at most a second, by which processes differ
_SHORTEST = 0.01  # seconds between looks at what remains
_MEMORY = 0.2  # weight of the newest request in the mean of tokens


def now() -> float:
    """Seconds of the clock of the machine's boot: it never steps, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def refuses(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer says to ask again later, and that the request was not worked on."""
    return status == 429 or (status == 503 and bool(retry_after.seconds(headers)))


@dataclass(slots=True)
class Allowance:
    """The gateway's rest of one kind, by its last answer."""

    limit: float
    """The most in a window, or the size of a bucket."""
    remaining: float
    """The rest at that time."""
    reset: float
    """Seconds until all of it is back."""
    at: float
    """When it was heard."""
    windowed: bool = False
    """Whether it comes back all at once; else little by little."""

    def left(self, moment: float) -> float:
        """The probable rest at a moment, if nothing was taken since."""
        passed = moment - self.at
        if passed >= self.reset:
            return self.limit
        if self.windowed:
            return self.remaining
        return self.remaining + (self.limit - self.remaining) * passed / self.reset

    def seconds_until(self, wanted: float, moment: float) -> float:
        """Seconds until so much is left; 0: now, also where nothing was heard for the longest pause.

        A limit below it counts as enough.
        """
        wanted = min(wanted, self.limit)
        if self.left(moment) >= wanted or moment - self.at >= LONGEST_PAUSE:
            return 0.0
        share = 1.0 if self.windowed else (wanted - self.remaining) / (self.limit - self.remaining)
        return max(_SHORTEST, self.at + self.reset * min(1.0, share) - moment)


@dataclass(frozen=True, slots=True)
class RequestInFlight:
    """A request that is out."""

    at: float
    """When it was sent."""
    relied: tuple[str, ...] = ()
    """Kinds of which only what came back little by little allowed it."""


@dataclass
class LimitFigures:
    """Effects of the limits so far."""

    refused: int = 0
    """Answers 429, and 503 that say until when."""
    waits: int = 0
    """Requests that waited before they were sent."""
    wait_seconds: float = 0.0
    """Seconds in which requests waited."""
    why: str = ""
    """The last word of a refusal, or the limit that held a request up; empty: nothing did."""


class Shared:
    """The moment before which no process of this node sends a request, in a file.

    Args:
        folder: a folder of this node.
        key: what names the gateway and the credential; holds no secret.

    A file of another user, or a folder that cannot be written, is as if there were none.
    """

    def __init__(self, folder: str | Path, key: str) -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        name = hashlib.sha256(f"{boot} {key}".encode()).hexdigest()[:24]
        self._file: int | None = None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            path = Path(folder) / f"hpcbench-limit-{os.getuid()}-{name}"
            file = os.open(path, flags, 0o600)
            found = os.fstat(file)
            if found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode):
                self._file = file
            else:
                os.close(file)

    def read(self) -> float:
        """The moment; -inf: none is known."""
        if self._file is None:
            return -math.inf
        try:
            return float(os.pread(self._file, 32, 0))
        except (OSError, ValueError):
            return -math.inf

    def write(self, until: float) -> None:
        """Set it; a crash in between leaves the one before."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, b"%-31.3f\n" % until, 0)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


@dataclass
class RateLimits:
    """The limits of one gateway, as one process knows them.

    Its caller reports what happens, with its moment; nothing here waits.
    """

    shared: Shared | None = None
    """Limits that other processes of this node know; None: they know none."""
    chance: random.Random = field(default_factory=random.Random)
    """Spreads the first requests of several processes after a pause."""
    figures: LimitFigures = field(default_factory=LimitFigures)
    """Effects of the limits so far."""
    allowances: dict[str, Allowance] = field(default_factory=dict)
    """Kind (`requests`, `tokens`) → what the gateway allows."""
    tokens_each: float = 0.0
    """Mean tokens of a request, by answers that counted them; newer ones count more."""
    _until: float = -math.inf
    _heard: float = -math.inf  # the moment of other processes that our own pause came from
    _refused_at: float = -math.inf
    _in_a_row: int = 0
    _window: float = math.inf  # most requests without a head
    _threshold: float = math.inf  # up to here the window doubles a round
    _unheard: int = 0

    def pause(self, moment: float) -> float | None:
        """Seconds until a request may be sent; 0: now; None: when the next answer comes."""
        self._listen(moment)
        if moment < self._until:
            return self._until - moment
        if self._unheard >= self._window:
            return None
        longest = 0.0
        for kind, allowance in self.allowances.items():
            longest = max(longest, allowance.seconds_until(self._wanted(kind), moment))
        return min(longest, LONGEST_PAUSE)

    def held_by(self, moment: float) -> str:
        """The limit that delays a request, for people; empty: none does."""
        if moment < self._until:
            why = self.figures.why or "another process was refused"
            return f"{why}; the next request goes in {self._until - moment:.0f} s"
        for kind, one in self.allowances.items():
            if seconds := one.seconds_until(self._wanted(kind), moment):
                return (
                    f"{one.remaining:g} of {one.limit:g} {kind} remain; "
                    f"the next request goes in {seconds:.0f} s"
                )
        return ""

    def sent(self, moment: float) -> RequestInFlight:
        """A request goes out."""
        relied = tuple(
            kind for kind, one in self.allowances.items() if one.remaining < self._wanted(kind)
        )
        self._unheard += 1
        return RequestInFlight(moment, relied)

    def lost(self) -> None:
        """A request ended without the head of an answer."""
        self._unheard -= 1

    def heard(
        self, sent: RequestInFlight, status: int, headers: Mapping[str, str], moment: float
    ) -> None:
        """The head of an answer came; names of `headers` are in lower case."""
        self._unheard -= 1
        self._read(headers, moment)
        if refuses(status, headers):
            self._refuse(sent, headers, moment)
            return
        if status >= 500:
            return
        self._in_a_row = 0
        if self._window < self._threshold:
            self._window += 1
        elif self._window < math.inf:
            self._window += 1 / self._window

    def used(self, tokens: int) -> None:
        """An answer counted its tokens, those of the prompt included."""
        weight = _MEMORY if self.tokens_each else 1.0
        self.tokens_each += weight * (tokens - self.tokens_each)

    def _wanted(self, kind: str) -> float:
        """Amount of the requests without a head and of one more, as far as it is known."""
        each = 1.0 if kind == "requests" else max(1.0, self.tokens_each)
        return (self._unheard + 1) * each

    def _listen(self, moment: float) -> None:
        """Take over a later moment, still to come, that another process of this node wrote."""
        until = -math.inf if self.shared is None else self.shared.read()
        if until > self._heard:
            self._heard = until
            if max(self._until, moment) < until <= moment + LONGEST_PAUSE:
                self._until = until + self._spread(until - moment)
                self._window, self._threshold = 1.0, max(1.0, self._unheard / 2)

    def _refuse(self, sent: RequestInFlight, headers: Mapping[str, str], moment: float) -> None:
        self.figures.refused += 1
        for kind in sent.relied:
            self.allowances[kind].windowed = True
        fresh = sent.at > self._refused_at
        wait = self._asked_for(headers)
        if wait is None:
            if not fresh:  # it was out when the refusal before came
                return
            wait = self._back_off(self._in_a_row)
        elif fresh and self._in_a_row >= _BELIEVED:
            wait = max(wait, self._back_off(self._in_a_row - _BELIEVED))
        if fresh:
            self._in_a_row += 1
            self._refused_at = moment
            self._threshold = max(1.0, self._unheard / 2)
            self._window = 1.0
        until = moment + min(max(wait, _SHORTEST), LONGEST_PAUSE)
        if until > self._until:
            self._until = until
            if self.shared is not None and until > self.shared.read() + _SHORTEST:
                self._heard = until
                self.shared.write(until)
            self._until += self._spread(wait)

    def _back_off(self, before: int) -> float:
        """A pause of our own choice after so many refusals."""
        longest = min(_LONGEST_BACK_OFF, _FIRST_PAUSE * 2.0 ** min(before, 10))
        return longest * self.chance.uniform(0.5, 1)

    def _spread(self, wait: float) -> float:
        if self.shared is None:
            return 0.0
        return self.chance.uniform(0, min(1.0, _LATER * max(0.0, wait)))

    def _asked_for(self, headers: Mapping[str, str]) -> float | None:
        """Seconds that a refusal asks to wait; None: it does not say."""
        milliseconds = headers.get("retry-after-ms", "")
        with contextlib.suppress(ValueError):
            if 0 < (found := float(milliseconds) / 1e3) < math.inf:
                return found
        if wait := retry_after.seconds(headers):  # "at once", to a refused request, is no word
            return wait
        resets = [one.reset for one in self.allowances.values() if one.remaining < 1]
        return max(resets, default=None)

    def _read(self, headers: Mapping[str, str], moment: float) -> None:
        for kind, remaining, limit, reset in limit_headers.read(headers):
            before = self.allowances.get(kind)
            windowed = before is not None and before.windowed
            most = max(remaining, 1.0, limit or 0.0)
            self.allowances[kind] = Allowance(
                most, remaining, max(reset, _SHORTEST), moment, windowed
            )

    def to_json(self) -> dict[str, Any]:
        """The figures and the limits, for events."""
        return {
            "refused": self.figures.refused,
            "waits": self.figures.waits,
            "wait_seconds": round(self.figures.wait_seconds, 3),
            "limits": {
                kind: {"limit": one.limit, "remaining": one.remaining, "reset": round(one.reset, 3)}
                for kind, one in self.allowances.items()
            },
        }
