"""Parts of logs: the end, new lines, earlier lines, and the lines that contain a text.

A log may have gigabytes and grow; no request reads more than a little of it. Engines and their libraries
write logs and repeat texts of models and datasets: an answer has no control characters, and no text that
looks like a secret.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from hpcbench import secret
from hpcbench.experiment.layout import Experiment
from hpcbench.number_format import in_order
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.run_tasks import LogChunk, LogLine, LogSource
from hpcbench.portal.safe_open import open_beneath
from hpcbench.sanitize import sanitize
from hpcbench.wrapper.masking import MASK, Mask, hidden_values

LINES, MOST_LINES = 200, 1000
"""Lines of an answer: the default, and the most."""

BLOCK = 1 << 18
"""Bytes of one read."""

READ = 1 << 20
"""Bytes that an answer without a search reads; a longer line is cut into pieces of this size."""

SEARCH_BYTES, SEARCH_SECONDS = 64 << 20, 0.05
"""Bytes and seconds that one request searches; the next request continues at `LogChunk.begin`."""

ERRORS, ERRORS_BYTES = 100, 2 << 20
"""Most lines that look like errors, and the bytes of a log's end in which they are searched."""

COUNTED = 4 << 20
"""Bytes before an answer up to which its lines get numbers; after a longer beginning they get none."""

WIDTH = 4000
"""Bytes of a line in one piece."""

SHORT = 200
"""Longest text whose masked form is kept, characters."""

AROUND = 8192
"""Bytes before and after a part of a line that are searched for secrets that cross its ends."""

LOGS = 400
"""Most logs of a list, the newest by name."""

IDLE_SECONDS = 10.0
"""A last line without a newline counts as whole after so many seconds without growth."""

_FOLDERS = ("workers", "jobs")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%@-]{0,199}\.(?:log|out|err)")
_JOB = re.compile(r"(?:^|\.)(\d+(?:_\d+)?)[._-]")
_ERROR = re.compile(
    r"\b(?i:error|traceback|exception|fatal|critical|panic|killed|out of memory|core dumped)\b"
    r"|\b[A-Z]\w*(?:Error|Exception)\b"
)
_WARNING = re.compile(r"\bwarn(?:ing)?s?\b", re.IGNORECASE)
_WORDS = (
    "error", "traceback", "exception", "fatal", "critical", "panic", "killed", "out of memory", "core dumped",
)  # fmt: skip
"""Every line that looks like an error contains one of these."""

_mask = Mask(hidden_values({}, os.environ))
_errors: LruCache[tuple[int, ...]] = LruCache(64)


@dataclass(frozen=True, slots=True)
class Log:
    """An opened log."""

    read: Callable[[int, int], bytes]
    """(number of bytes, offset) → bytes."""
    size: int
    """Bytes."""
    changed: float
    """Time of its last growth, seconds since the epoch."""
    identity: tuple[int, int]
    """Device and inode: they identify the file."""


# --- which logs ---------------------------------------------------------------------------------------


def sources(experiment: Experiment, workers: Sequence[str] | None = None) -> tuple[LogSource, ...]:
    """Logs of an experiment, logs of workers first.

    Args:
        experiment: the experiment.
        workers: only the logs of these workers, `GROUP.JOB-RESTART`; None: all logs.
    """
    names = [(folder, name) for folder in _FOLDERS for name in _names(experiment.path / folder)]
    owned = {_job(name) for folder, name in names if folder == "workers"} - {""}
    if workers is not None:
        jobs = {_job(f"{stem}.log") for stem in workers}
        names = [(folder, name) for folder, name in names if _job(name) in jobs]
    found = []
    for folder, name in names[:LOGS]:
        try:
            with opened(experiment, f"{folder}.{name}") as log:
                found.append(_source(folder, name, log, owned))
        except OSError:
            continue  # removed, or not readable
    return tuple(found)


def _names(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - only names are needed, of many files
    except OSError:
        return []
    return sorted((name for name in names if _NAME.fullmatch(name)), key=in_order)[::-1]


def _job(name: str) -> str:
    """The job in a log's name: `4711_3` of `g0.4711_3-0.log` and of `4711_3_0_log.out`."""
    name = re.sub(r"_\d+_log\.(out|err)$", ".", name)
    return match[1] if (match := _JOB.search(name)) else ""


def _source(folder: str, name: str, log: Log, owned: set[str]) -> LogSource:
    job = _job(name)
    kind: Literal["worker", "job", "engine"]
    if folder == "workers":
        title = f"engine of {name.partition('.')[0]}, job {job}" if job else f"engine, {name}"
        kind = "engine"
    elif job in owned:
        kind, title = "worker", f"worker, job {job}"
    else:
        kind, title = "job", f"job {job}" if job else name
    return LogSource(
        id=f"{folder}.{name}", title=title, kind=kind, size=log.size, updated=log.changed
    )


@contextlib.contextmanager
def opened(experiment: Experiment, identity: str) -> Iterator[Log]:
    """A log below its experiment, opened without following a link.

    Raises:
        FileNotFoundError: no log has this id.
        OSError: the log cannot be read.
    """

    folder, _, name = identity.partition(".")
    if folder not in _FOLDERS or not _NAME.fullmatch(name):
        raise FileNotFoundError("there is no log with this id")
    descriptor = open_beneath(experiment.path, folder, name)
    try:
        stat = os.fstat(descriptor)
        read = partial(os.pread, descriptor)
        yield Log(read, stat.st_size, stat.st_mtime, (stat.st_dev, stat.st_ino))
    finally:
        os.close(descriptor)


# --- pieces -------------------------------------------------------------------------------------------

Line = tuple[int, bytes]
"""Offset of a line, and its bytes with its newline."""


def chunk(
    log: Log,
    *,
    after: int | None = None,
    before: int | None = None,
    lines: int = LINES,
    grep: str = "",
    now: float | None = None,
) -> LogChunk:
    """A part of a log: by default its end.

    Consecutive pieces contain every line exactly once, whatever their sizes; a line of more than `READ` bytes
    is split over several.

    Args:
        log: an opened log.
        after: give the lines from this offset on.
        before: give the lines before this offset.
        lines: most lines.
        grep: only lines that contain this text, in any case. The search goes forwards with `after`, else
            backwards; it covers `LogChunk.begin` to `LogChunk.end`.
        now: the time, seconds since the epoch.
    """
    lines = max(1, min(lines, MOST_LINES))
    end = _end(log, time.time() if now is None else now)
    if after is not None and after <= end:
        begin = max(0, after)
        if grep:
            found, upto = _search_on(log, begin, end, grep, lines)
        else:
            found = _forwards(log, begin, end, lines)
            upto = found[-1][0] + len(found[-1][1]) if found else begin
        return _answer(log, found, begin, upto)
    upto = end if before is None else max(0, min(before, end))
    if grep:
        found, begin = _search_back(log, upto, grep, lines)
    else:
        found = _backwards(log, upto, lines)
        begin = found[0][0] if found else upto
    return _answer(log, found, begin, upto)


def _end(log: Log, now: float) -> int:
    """Offset of the end of the last whole line."""
    if now - log.changed > IDLE_SECONDS or not log.size:
        return log.size
    low = max(0, log.size - READ)
    tail = log.read(log.size - low, low)
    cut = tail.rfind(b"\n") + 1
    return low + cut if cut else (log.size if log.size >= READ else 0)


def _forwards(log: Log, begin: int, end: int, lines: int) -> list[Line]:
    data = b""
    while len(data) < READ and data.count(b"\n") < lines and begin + len(data) < end:
        want = min(BLOCK, READ - len(data), end - begin - len(data))
        block = log.read(want, begin + len(data))
        if not block:
            break
        data += block
    if begin + len(data) < end and (cut := data.rfind(b"\n") + 1):
        data = data[:cut]
    return list(_split(data, begin))[:lines]


def _backwards(log: Log, end: int, lines: int) -> list[Line]:
    data, begin = b"", end
    while begin > 0 and len(data) < READ and data.count(b"\n") <= lines:
        low = max(0, begin - min(BLOCK, READ - len(data)))
        data, begin = log.read(begin - low, low) + data, low
    if begin > 0 and (cut := data.find(b"\n") + 1) and cut < len(data):
        data, begin = data[cut:], begin + cut
    return list(_split(data, begin))[-lines:]


def _split(data: bytes, begin: int) -> Iterator[Line]:
    """Lines end with newlines only: a carriage return redraws a progress bar, and ends no line."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        yield begin + at, data[at:end]
        at = end


# --- searching ----------------------------------------------------------------------------------------


def _search_on(log: Log, begin: int, end: int, text: str, lines: int) -> tuple[list[Line], int]:
    """Lines from here on that contain a text, and the offset at which the search stopped."""
    found: list[Line] = []
    at, stop = begin, min(end, begin + SEARCH_BYTES)
    until = time.monotonic() + SEARCH_SECONDS
    while at < stop and len(found) < lines and (at == begin or time.monotonic() < until):
        data = log.read(min(READ, end - at), at)
        if at + len(data) < end and (cut := data.rfind(b"\n") + 1):
            data = data[:cut]
        if not data:
            break
        hits = list(_hits(data, at, text))
        if len(found) + len(hits) >= lines:
            hits = hits[: lines - len(found)]
            data = data[: hits[-1][0] + len(hits[-1][1]) - at]
        found += hits
        at += len(data)
    return found, at


def _search_back(log: Log, end: int, text: str, lines: int) -> tuple[list[Line], int]:
    """Lines before here that contain a text, and the offset at which the search stopped."""
    found: list[Line] = []
    at, stop = end, max(0, end - SEARCH_BYTES)
    until = time.monotonic() + SEARCH_SECONDS
    while at > stop and len(found) < lines and (at == end or time.monotonic() < until):
        low = max(0, at - READ)
        data = log.read(at - low, low)
        if low > 0 and (cut := data.find(b"\n") + 1) and cut < len(data):
            data, low = data[cut:], low + cut
        hits = list(_hits(data, low, text))
        if len(found) + len(hits) >= lines:
            hits = hits[len(found) - lines :]
            low = hits[0][0]
        found = hits + found
        at = low
    return found, at


def _hits(data: bytes, begin: int, text: str) -> Iterator[Line]:
    """Lines of a block that contain a text; the other lines are not examined one by one."""
    wanted = text.lower().encode("utf-8", "replace")
    folded = data.lower() if data.isascii() else data.decode(errors="replace").lower().encode()
    if len(folded) != len(data):  # letters that change their length: offsets would be wrong
        for at, line in _split(data, begin):
            if wanted in line.decode(errors="replace").lower().encode():
                yield at, line
        return
    place = folded.find(wanted)
    while place >= 0:
        low = data.rfind(b"\n", 0, place) + 1
        high = data.find(b"\n", place)
        high = len(data) if high < 0 else high + 1
        yield begin + low, data[low:high]
        place = folded.find(wanted, high)


def _error_places(log: Log) -> tuple[int, ...]:
    """Offsets of the last lines that look like errors."""
    low = max(0, log.size - ERRORS_BYTES)
    data = log.read(log.size - low, low)
    folded = data.lower()
    places: set[int] = set()
    for word in _WORDS:
        at, left = len(folded), ERRORS
        while left and (at := folded.rfind(word.encode(), 0, at)) >= 0:
            begin = data.rfind(b"\n", 0, at) + 1
            if begin not in places:
                end = data.find(b"\n", at)
                line = data[begin : end if end >= 0 else len(data)][:WIDTH]
                if _ERROR.search(line.decode(errors="replace")):
                    places.add(begin)
                left -= 1
            at = begin
    return tuple(low + place for place in sorted(places)[-ERRORS:])


# --- answers ------------------------------------------------------------------------------------------


def _answer(log: Log, found: Sequence[Line], begin: int, end: int) -> LogChunk:
    first = None
    if begin <= COUNTED and _follow_each_other(found):
        first = 1 + log.read(begin, 0).count(b"\n")
    lines: list[LogLine] = []
    for at, text, continued in _pieces(log, found):
        number = lines[-1].number + (not continued) if lines else first or 1
        line = LogLine(number=number, at=at, text=text, level=level_of(text), continued=continued)
        lines.append(line)
    return LogChunk(
        lines=tuple(lines),
        first=first,
        begin=begin,
        end=end,
        size=log.size,
        errors=_errors.of(log.identity, log.size, lambda: _error_places(log)),
    )


def _pieces(log: Log, found: Sequence[Line]) -> Iterator[tuple[int, str, bool]]:
    """Lines as text without control characters and secrets, long lines in pieces: offset, text, and whether
    it continues a line."""
    if not found:
        return
    before, behind = _around(log, found)
    shown = [_last_state(line) for _, line in found]
    data = b"\n".join([before + shown[0][1], *(text for _, text in shown[1:])]) + behind
    secrets, place = _mask.places(data), len(before)
    for (at, _), (skipped, text) in zip(found, shown, strict=True):
        low, end, continued = place, place + len(text), bool(before) and place == len(before)
        while True:
            high = _cut(data, low, end)
            offset = at + (low - place + skipped if low > place else 0)
            piece = _without(data, low, high, secrets)
            yield offset, secret.mask(sanitize(piece.decode(errors="replace"))), continued
            low, continued = high, True
            if low >= end:
                break
        place = end + 1


def _around(log: Log, found: Sequence[Line]) -> tuple[bytes, bytes]:
    """Text before the first line and after the last line where these are parts of longer lines."""
    begin, (last, line) = found[0][0], found[-1]
    low, end = max(0, begin - AROUND), last + len(line)
    before = re.split(rb"[\r\n]", log.read(begin - low, low))[-1] if begin else b""
    whole = line.endswith(b"\n") or end >= log.size
    return before, b"" if whole else re.split(rb"[\r\n]", log.read(AROUND, end))[0]


def _last_state(line: bytes) -> tuple[int, bytes]:
    """The last state of a progress bar that was redrawn, and the number of bytes before it."""
    text = line.rstrip(b"\r\n")
    skipped = text.rfind(b"\r") + 1
    return skipped, text[skipped:]


def _cut(data: bytes, low: int, end: int) -> int:
    """End of a piece: within no character, and within no escape sequence of a usual length."""
    high = low + WIDTH
    if high >= end:
        return end
    escape = data.rfind(b"\x1b", high - 32, high)
    if escape > low:
        return escape
    while high > low + WIDTH - 4 and data[high] & 0xC0 == 0x80:
        high -= 1
    return high


def _without(data: bytes, low: int, high: int, secrets: Sequence[tuple[int, int]]) -> bytes:
    """A part of a text without the secrets inside it or across its ends."""
    parts, done = [], low
    for begin, end in secrets[bisect_right(secrets, low, key=lambda one: one[1]) :]:
        if begin >= high:
            break
        parts += [data[done : max(begin, low)], MASK]
        done = min(end, high)
    return b"".join([*parts, data[done:high]])


def _follow_each_other(found: Sequence[Line]) -> bool:
    return all(
        one[0] + len(one[1]) == other[0] for one, other in zip(found, found[1:], strict=False)
    )


def readable(lines: Sequence[bytes]) -> list[str]:
    """Lines as text without control characters and secrets."""
    # Only the last state of a redrawn progress bar; with a margin, so that no half of a secret remains.
    cut = [line.rstrip(b"\r\n").rpartition(b"\r")[2][: 8 * WIDTH] for line in lines]
    masked = _mask.clean(b"\n".join(cut)).split(b"\n") if cut else []
    if len(masked) != len(cut):  # a secret of several lines
        masked = [_mask.clean(line) for line in cut]
    return [secret.mask(sanitize(line.decode(errors="replace")))[:WIDTH] for line in masked]


def masked(text: str) -> str:
    """A text without secrets and without texts that look like secrets."""
    # Definitions repeat the same short texts in every run task.
    if len(text) <= SHORT:
        return _masked(text, secret.known())
    return secret.mask(_mask(text))


@lru_cache(maxsize=4096)
def _masked(text: str, _known: int) -> str:
    return secret.mask(_mask(text))


def level_of(text: str) -> Literal["error", "warning", ""]:
    """Severity of a line, by its words."""
    # Most lines contain none of the words, and this test is fifty times as fast as the expression.
    folded = text.lower()
    if any(word in folded for word in _WORDS) and _ERROR.search(text):
        return "error"
    return "warning" if "warn" in folded and _WARNING.search(text) else ""
