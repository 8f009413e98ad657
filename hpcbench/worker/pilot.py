"""A worker's first samples of a run task are a pilot: it stops a run task of which every sample would fail.

A pilot costs nothing: its samples are the run task's own, their answers count, and no worker waits for it.
Its first readable answer ends it, so that a worker reads only one answer if all is well.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from hpcbench.errors import HpcbenchError
from hpcbench.evaluation.reading import read_answer
from hpcbench.parsers import Read, reader
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED, Response, Sample
from hpcbench.scorer.isolate import Guard

LONGEST = 300
"""Most characters of a reason."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Pilot:
    """Watches a worker's answers to one run task until it is known whether all of them fail.

    Args:
        run_task: the run task.
        size: samples of the pilot; 0: none.
    """

    def __init__(self, run_task: ResolvedRunTask, size: int) -> None:
        self.size = size
        self.over = not size
        """Whether the pilot has ended."""
        self._guard = Guard(run_task.task.score_timeout)
        self._reader: Read | None = None if self.over else _reader(run_task)
        self._taken: dict[str, Sample] = {}
        """Samples in flight."""
        self._first: list[str] = []
        """Samples of the pilot."""
        self._bad: dict[str, str] = {}
        """Sample → reason why it has no readable answer."""

    def begin(self) -> None:
        """Start taking samples; samples without an answer are taken again, here or by other workers."""
        self._taken.clear()
        self._first = [name for name in self._first if name in self._bad]

    def takes(self, sample: Sample) -> None:
        """Record a sample that will be sent."""
        if self.over:
            return
        if len(self._first) < self.size and sample.id not in self._first:
            self._first.append(sample.id)
        self._taken[sample.id] = replace(sample, images=())

    def judge(self, response: Response) -> str | None:
        """Check an answer; returns why the run task fails, once every sample of the pilot is unreadable.

        A readable answer to a later sample ends the pilot, too: immediate failures come before other answers.
        """
        sample = None if self.over else self._taken.pop(response.sample_id, None)
        if sample is None:
            return None
        why = self._fault(sample, response)
        if why is None:
            self._end()
            return None
        self._bad[sample.id] = why
        if len(self._first) < self.size or any(name not in self._bad for name in self._first):
            return None
        message = _message([self._bad[name] for name in self._first])
        self._end()
        return message

    def _end(self) -> None:
        self.over = True
        self._taken.clear()

    def _fault(self, sample: Sample, response: Response) -> str | None:
        """Why there is no readable answer; None: it is readable."""
        if response.outcome not in ANSWERED:
            return f"{response.outcome}: {response.error or 'no reason given'}"
        if not (response.text or "").strip():
            # A text answer may be empty, and is scored so; but if all are empty, something is wrong.
            return f"empty: the answer has no text{_cut(response.outcome == 'truncated')}"
        if self._reader is None:
            return None
        with self._guard:
            reading = read_answer(
                self._reader, self._guard, sample, response.text, response.outcome
            )
        if reading.value is not None:
            return None
        return f"unreadable: {reading.reason or 'not read'}{_cut(reading.truncated)}"


def _cut(truncated: bool) -> str:
    return ", cut at max_tokens" if truncated else ""


def _reader(run_task: ResolvedRunTask) -> Read | None:
    """The reader of answers; None if this machine cannot load it: then any answer counts as readable."""
    try:
        return reader(run_task.ml_task)
    except HpcbenchError:
        return None


def _message(faults: list[str]) -> str:
    """The most frequent reason with its count; reasons that differ only in numbers count as equal."""
    kinds = Counter(_NUMBER.sub("#", fault) for fault in faults)
    kind, count = kinds.most_common(1)[0]
    first = next(fault for fault in faults if _NUMBER.sub("#", fault) == kind)
    said = " ".join(first.split()).rstrip(".")
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]} …"
    asked = len(faults)
    many = (
        f"none of the first {asked} samples has" if asked > 1 else "the first sample does not have"
    )
    times = f"{count} × " if count > 1 else ""
    return f"its pilot failed, {many} a readable answer: {times}{said}"
