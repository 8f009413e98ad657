"""Metrics that a program of their publisher computes: predictions out, its own command, its figures in.

The program is in an image of its own (`image:` of the metric's definition), where this code runs beside it. A
release of the program is part of the signature: another release is another metric.

A program scores many samples in one run. If it fails, the samples are halved until the sample is found that
it fails on: that one has the reason as its fault, the others keep their scores. So a program must score each
sample as if there were no other.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hpcbench.metrics.base import SampleMetric, acceptable

START, PACE = 120.0, 1.0
"""Seconds that a run may take to start, and for each sample, besides the time limit of one sample."""

HOPELESS = 8
"""If a program fails on so many first samples, each alone and in the same words, it is not run for others."""

Pair = tuple[object, Sequence[Any]]
"""A prediction and its references."""


class NotInstalled(ImportError):
    """The program, or this release of it, is not where the metric is asked to score."""


class ProgramFailed(RuntimeError):
    """The program ended without the figures of its samples."""


def installed(distribution: str, release: str) -> None:
    """Check that a release of a package is installed.

    Raises:
        NotInstalled: it is not.
    """
    wanted = f"{distribution} {release}"
    try:
        found = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        what = "`image:` of the metric's definition names an image that has it"
        raise NotInstalled(f"{wanted} is not installed here; {what}") from None
    if found != release:
        raise NotInstalled(
            f"the metric is of {wanted}, and {distribution} {found} is installed here"
        )


def apart(functions: Sequence[Callable[[], Any]], seconds: float | None, at_once: int) -> list[Any]:
    """The result of each function, or the `ProgramFailed` that says why it has none; a process for each.

    One sample may make foreign code run out of memory, hang in a library or leave programs that go on. That
    costs this sample alone: its process ends with all that it started, also when the caller's time is over.

    Args:
        functions: each returns JSON's types.
        seconds: time limit of one; None: no limit.
        at_once: processes at a time.
    """
    found: list[Any] = [None] * len(functions)
    waiting = deque(enumerate(functions))
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place, function = waiting.popleft()
                running.append(_Child(function, place, seconds))
            wait = max(0.0, min(one.until for one in running) - time.monotonic())
            ready, _, _ = select.select(running, [], [], None if wait == math.inf else wait)
            now = time.monotonic()
            for child in [one for one in running if one in ready or one.until <= now]:
                if child not in ready:
                    found[child.place] = ProgramFailed(f"took longer than {seconds:g} s")
                elif child.read():
                    continue
                else:
                    found[child.place] = child.result()
                running.remove(child)
                child.end()
    finally:
        for child in running:
            child.end()
    return found


class _Child:
    """A process that computes one function."""

    def __init__(self, function: Callable[[], Any], place: int, seconds: float | None) -> None:
        self.place = place
        self.until = math.inf if seconds is None else time.monotonic() + seconds
        self._said = b""
        reading, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _answer(function, writing)
        with suppress(OSError):  # the child does it, too: whichever comes first
            os.setpgid(self._pid, self._pid)
        os.close(writing)
        self._pipe = reading

    def fileno(self) -> int:
        return self._pipe

    def read(self) -> bool:
        """Read its next piece; False: it ended."""
        piece = os.read(self._pipe, 2**16)
        self._said += piece
        return bool(piece)

    def result(self) -> Any:
        """The function's result, or the reason why there is none."""
        if not self._said:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            assert ended is not None  # noqa: S101 - for the type: without WNOHANG there is one
            how = "with exit code" if ended.si_code == os.CLD_EXITED else "by signal"
            return ProgramFailed(f"its process ended {how} {ended.si_status}")
        answer = json.loads(self._said)
        return ProgramFailed(answer["raised"]) if "raised" in answer else answer["value"]

    def end(self) -> None:
        """End it with all that it started."""
        os.close(self._pipe)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _answer(function: Callable[[], Any], writing: int) -> NoReturn:
    """The child's part of `apart`; nothing that the parent would clean up runs in it."""
    code = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        try:
            answer = {"value": function()}
        except BaseException as error:  # noqa: BLE001 - foreign code, which also exits
            answer = {"raised": f"{type(error).__name__}: {error}".rstrip(": ")}
        said = json.dumps(answer).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(said)
        code = 0
    finally:
        os._exit(code)


@dataclass(frozen=True)
class PublishersMetric(SampleMetric):
    """A metric that the package of its publisher computes."""

    release: str
    """Version of the package."""

    distribution: ClassVar[str]
    """The package on PyPI."""
    alone_seconds: ClassVar[float]
    """Time limit of a sample that is scored alone."""

    @abstractmethod
    def score_all(self, pairs: Sequence[Pair], seconds: float) -> list[Any]:
        """The parts of each sample, or the exception that says why it has none.

        Args:
            pairs: predictions and references.
            seconds: time limit of one sample.
        """

    def score(self, prediction: object, references: Sequence[Any]) -> Any:
        """One sample alone.

        Raises:
            NotInstalled, ProgramFailed, ValueError: why it has no score.
        """
        (found,) = self.score_all([(prediction, references)], self.alone_seconds)
        if isinstance(found, Exception):
            raise found
        return found

    def check_here(self) -> None:
        """Check that the metric can score here.

        Raises:
            NotInstalled: it cannot.
        """
        installed(self.distribution, self.release)

    @property
    def signature(self) -> str:
        """E.g. `olmocr_bench|olmocr:0.4.27|v1`: name, the package and its release, our version."""
        return f"{self.name}|{self.distribution}:{self.release}|v1"


@dataclass(frozen=True)
class FunctionMetric(PublishersMetric):
    """A metric whose values a function of its publisher's package computes, in a process for each sample."""

    alone_seconds = math.inf
    module: ClassVar[str]
    """Module with the function, imported once, before the processes start."""

    @abstractmethod
    def compute(self, prediction: str, references: Sequence[Any]) -> Any:
        """The function's result for one sample, of JSON's types.

        Raises:
            ValueError: the reference is not of its form.
        """

    @abstractmethod
    def parts(self, computed: Any) -> Any:
        """The parts of a sample, of what was computed."""

    def score_all(self, pairs: Sequence[Pair], seconds: float) -> list[Any]:
        """The parts of each sample, or the exception that says why it has none; as many at once as CPUs.

        Args:
            pairs: predictions and references.
            seconds: time limit of one sample.
        """
        try:
            return self._computed(pairs, seconds)
        except ImportError as error:
            return [error] * len(pairs)

    def _computed(self, pairs: Sequence[Pair], seconds: float) -> list[Any]:
        self.check_here()
        importlib.import_module(self.module)
        calls = [
            partial(self.compute, prediction if isinstance(prediction, str) else "", several)
            for prediction, several in pairs
        ]
        return [
            one if isinstance(one, ProgramFailed) else self.parts(one)
            for one in apart(calls, seconds, len(os.sched_getaffinity(0)))
        ]


@dataclass(frozen=True)
class ProgramMetric(PublishersMetric):
    """A metric whose values a program computes."""

    alone_seconds = START
    accepts: ClassVar[tuple[str, ...]] = ("text",)
    most_at_once: ClassVar[int] = 500
    """Samples of one run at most."""

    @abstractmethod
    def write(self, folder: Path, texts: Sequence[str], references: Sequence[Any]) -> list[str]:
        """Write predictions as the program reads them; returns its command, run in that folder.

        Args:
            folder: an empty folder.
            texts: the predictions; an unreadable one is an empty text.
            references: one for each.

        Raises:
            ValueError: a reference is not of the program's form.
        """

    @abstractmethod
    def read(self, folder: Path, printed: str, references: Sequence[Any]) -> list[Any]:
        """The parts of each sample, or the exception that says why it has none.

        Args:
            folder: as `write` got it.
            printed: the program's output.
            references: as `write` got them.

        Raises:
            Exception: the program's results are missing, or not of its form.
        """

    def score_all(self, pairs: Sequence[Pair], seconds: float) -> list[Any]:
        """The parts of each sample, or the exception that says why it has none.

        Args:
            pairs: predictions and references.
            seconds: time limit of one sample. A run has it once, besides `START` and `PACE`, so that a sample
                on which the program hangs is found before long.
        """
        try:
            self.check_here()
        except NotInstalled as error:
            return [error] * len(pairs)
        found: list[Any] = []
        for start in range(0, len(pairs), self.most_at_once):
            found += self._halved(pairs[start : start + self.most_at_once], seconds, found)
        return found

    def _halved(self, pairs: Sequence[Pair], seconds: float, before: Sequence[Any]) -> list[Any]:
        """The parts of some samples; `before` are those of the samples before them."""
        first_ones = [str(one) for one in before[:HOPELESS] if isinstance(one, Exception)]
        if len(first_ones) == HOPELESS and len(set(first_ones)) == 1:
            what = f"not run: {self.distribution} failed on each of the first {HOPELESS} samples: {before[0]}"
            return [ProgramFailed(what)] * len(pairs)
        try:
            return self._run(pairs, seconds)
        except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
            if len(pairs) == 1:
                return [error]
        middle = len(pairs) // 2
        first = self._halved(pairs[:middle], seconds, before)
        return first + self._halved(pairs[middle:], seconds, [*before, *first])

    def _run(self, pairs: Sequence[Pair], seconds: float) -> list[Any]:
        texts = [_text(prediction) for prediction, _ in pairs]
        references = [acceptable(self.name, several)[0] for _, several in pairs]
        with tempfile.TemporaryDirectory(prefix="program-") as name:
            folder = Path(name)
            work = folder / "work"
            work.mkdir()
            command = self.write(work, texts, references)
            printed = self._printed(command, work, folder, START + seconds + PACE * len(pairs))
            found = self.read(work, printed, references)
        if len(found) != len(pairs):
            what = f"it has figures of {len(found)} samples, not of {len(pairs)}"
            raise ProgramFailed(f"{self.distribution}: {what}")
        return found

    def _printed(self, command: Sequence[str], work: Path, folder: Path, seconds: float) -> str:
        """Output of a program that ended well; its home is an empty folder.

        Raises:
            ProgramFailed: it ended otherwise, or not in time.
        """
        home = folder / "home"
        home.mkdir()
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=work, env={**os.environ, "HOME": str(home)},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                what = f"{self.distribution} did not end in {seconds:g} s"
                raise ProgramFailed(what) from None
            finally:  # also what it left behind, such as browsers
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed = log.read_text("utf-8", "replace")
        if code:
            raise ProgramFailed(f"{self.distribution} ended with exit code {code}: {_why(printed)}")
        return printed


def _why(printed: str) -> str:
    """The last exception that a program printed; without one, its last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return [*lines, *raised][-1] if lines else "it printed nothing"


def _text(prediction: object) -> str:
    """A prediction as programs read it: lone surrogates, which no file can hold, become `?`."""
    text = prediction if isinstance(prediction, str) else ""
    return text.encode("utf-8", "replace").decode("utf-8")
