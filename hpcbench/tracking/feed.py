"""Send missing data to a tracker: once, or while the experiment runs.

Everything may be sent twice and exists once: parts have their own names at the tracker. Notes avoid sending
data that the tracker is known to have.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.events import has_ended
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.files.hashing import hash_file
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.tracking.experiment_content import (
    Exchange,
    Piece,
    figures_of,
    files_of,
    pieces,
    scores_file,
)
from hpcbench.tracking.sent import Notes

LOOK_SECONDS = 5.0
"""Shortest time between two looks at a running experiment."""

SHARE = 2
"""A pause is so many times as long as the look before it: file systems are shared."""

PAUSE_MOST = 300.0
"""Longest pause, seconds."""

WAITS = (2.0, 5.0, 15.0, 60.0)
"""Seconds before a live retry of a tracker that failed: after the first failure …; then always the last."""

AFTER_END = 3
"""Failures after the experiment's end before it gives up."""


class Sink:
    """One experiment at one tracker. Every call may be repeated, by another process too.

    Each method raises EnvironmentFault where the tracker cannot be reached or refuses.
    """

    wants: ClassVar[frozenset[str]] = frozenset()
    """`figures`, `progress`, `files`, and `exchanges` as they come or a `table` of them at the end."""
    at_once: ClassVar[int] = 25
    """Exchanges in one call: a busy tracker takes seconds for them."""
    late: ClassVar[bool] = False
    """Whether the tracker stores nothing durably before `close` returns."""

    def open(self) -> None:
        """Find or create the tracker's part for this experiment."""
        raise NotImplementedError

    def figures(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Figures at the end of round `step`; names as in `experiment_content.figures_of`."""
        raise NotImplementedError

    def progress(self, run_task: ResolvedRunTask, figures: Mapping[str, float], step: int) -> None:
        """Counts during the run, after `step` answers."""
        raise NotImplementedError

    def file(self, run_task: ResolvedRunTask | None, name: str, path: Path) -> None:
        """A file of a run task, or of the whole experiment."""
        raise NotImplementedError

    def exchanges(self, run_task: ResolvedRunTask, found: Sequence[Exchange]) -> int:
        """Prompts and responses; returns how many were new."""
        raise NotImplementedError

    def close(self, state: str | None) -> None:
        """All data are sent; `state` is the experiment's final state, None: it goes on."""


@dataclass(slots=True)
class SentCounts:
    """Counts of sent data."""

    exchanges: int = 0
    """New prompts with their responses."""
    figures: int = 0
    """Figures of run tasks that were sent, or sent again because they changed."""
    files: int = 0
    """Files, likewise."""
    state: str | None = None
    """The experiment's final state; None: it goes on."""
    fault: str | None = None
    """Why the last look failed to send; it is tried again."""


class Sending:
    """The transfer of an experiment to a tracker.

    Args:
        experiment: the experiment.
        sink: the tracker.
        notes: records of earlier sends.
        samples: most exchanges of each run task; None: all.
        beat: is called after every success.
    """

    def __init__(
        self,
        experiment: Experiment,
        sink: Sink,
        notes: Notes,
        samples: int | None,
        beat: Callable[[SentCounts], None],
    ) -> None:
        self._experiment, self._sink, self._notes = experiment, sink, notes
        self._samples, self._beat = samples, beat
        self._partly: dict[str, set[str]] = {}
        """Shard → samples of it that this process sent."""
        self._pending: list[tuple[str, str, str]] = []
        """Notes on data that the tracker does not store durably yet."""
        self._open = False
        self.sent = SentCounts()

    def once(self) -> SentCounts:
        """Send missing data."""
        self._look()
        return self.sent

    def follow(self) -> SentCounts:
        """Send missing and new data until the experiment has ended.

        A tracker that fails is tried again; after the experiment's end only `AFTER_END` times.
        """
        failed = after_end = 0
        while True:
            began = time.monotonic()
            try:
                self._look()
                failed = 0
                if self.sent.state is not None:
                    return self.sent
            except (EnvironmentFault, OSError) as error:
                self._open = False
                self._pending.clear()
                self.sent.fault = " ".join(secret.mask(str(error)).split())[:400]
                failed += 1
                if not self._experiment.path.is_dir():
                    raise
                after_end += has_ended(self._experiment)
                if after_end >= AFTER_END:
                    raise
            wait = WAITS[min(failed, len(WAITS)) - 1] if failed else LOOK_SECONDS
            self._rest(max(wait, SHARE * (time.monotonic() - began)))

    def _rest(self, seconds: float) -> None:
        """Wait, but stop waiting when the experiment ends."""
        until = time.monotonic() + min(seconds, PAUSE_MOST)
        over = has_ended(self._experiment)
        while (left := until - time.monotonic()) > 0:
            self._beat(self.sent)
            time.sleep(min(left, LOOK_SECONDS))
            if not over and has_ended(self._experiment):
                return

    def _look(self) -> None:
        # Read the end before the answers: after the end no answers are added.
        ended = has_ended(self._experiment)
        known = outcome(self._experiment) if ended else None
        if not self._open:
            self._sink.open()
            self._open = True
            self._beat(self.sent)
        if known is not None:
            self._send_figures(known.round)
        for run_task in self._experiment.resolved.run_tasks:
            self._send_exchanges(run_task, ended=known is not None)
        self._sink.close(known.state if known is not None else None)
        for note in self._pending:
            self._notes.put(*note)
        self._pending.clear()
        self.sent.fault = None
        if known is not None:
            self.sent.state = known.state
        self._beat(self.sent)

    def _note(self, what: str, name: str, value: str) -> None:
        if self._sink.late:
            self._pending.append((what, name, value))
        else:
            self._notes.put(what, name, value)

    # --- figures and files ------------------------------------------------------------------------------

    def _new_figures(self) -> dict[str, tuple[Mapping[str, float], str]]:
        """Run task → its figures and their hash, where the hash differs from the sent one."""
        if "figures" not in self._sink.wants or not self._experiment.metrics_file.exists():
            return {}
        found: dict[str, tuple[Mapping[str, float], str]] = {}
        for name, figures in figures_of(self._experiment).items():
            digest = hashlib.sha256(repr(sorted(figures.items())).encode()).hexdigest()
            if self._notes.get("figures", name) != digest:
                found[name] = figures, digest
        return found

    def _new_files(self) -> Iterator[tuple[ResolvedRunTask | None, str, Path, str]]:
        if "files" not in self._sink.wants:
            return
        of_tasks = [
            (run_task, name, path)
            for run_task in self._experiment.resolved.run_tasks
            for name, path in scores_file(self._experiment, run_task.name).items()
        ]
        of_whole = [(None, name, path) for name, path in files_of(self._experiment).items()]
        for run_task, name, path in [*of_whole, *of_tasks]:
            digest = hash_file(path)
            if self._notes.get("file", name) != digest:
                yield run_task, name, path, digest

    def _send_figures(self, step: int) -> None:
        new = self._new_figures()
        for run_task in self._experiment.resolved.run_tasks:
            if run_task.name in new:
                figures, digest = new[run_task.name]
                self._sink.figures(run_task, figures, step)
                self._note("figures", run_task.name, digest)
                self.sent.figures += len(figures)
                self._beat(self.sent)
        for of, name, path, digest in self._new_files():
            self._sink.file(of, name, path)
            self._note("file", name, digest)
            self.sent.files += 1
            self._beat(self.sent)

    # --- prompts and responses --------------------------------------------------------------------------

    def _send_exchanges(self, run_task: ResolvedRunTask, *, ended: bool) -> None:
        if not ended and "progress" in self._sink.wants:
            self._progress(run_task)
        table = "table" in self._sink.wants
        if self._samples == 0 or (table and not ended):
            return
        # A shard that was sent before it had scores is sent again with them.
        scored = _digest(self._experiment, run_task) if ended else ""
        found = pieces(
            self._experiment,
            run_task,
            {} if table else self._known(run_task, f"/{scored}"),
            limit=self._samples,
            ended=ended,
        )
        if table:
            self._send_table(run_task, found)
            return
        for piece in found:
            self._send_piece(run_task, piece, f"{piece.attempt}/{scored}")

    def _known(self, run_task: ResolvedRunTask, ending: str) -> dict[str, int]:
        """Shard → the attempt that was sent completely, with these scores."""
        noted = {
            shard.id: self._notes.get(self._what, shard.id)
            for shard in self._experiment.work.shards_of((run_task.name,))
        }
        return {
            name: int(version.partition("/")[0])
            for name, version in noted.items()
            if version is not None and version.endswith(ending)
        }

    @property
    def _what(self) -> str:
        """Name of shards in notes: a shard sent in part, for a limit, does not count as sent."""
        return "shard" if self._samples is None else f"shard of {self._samples}"

    def _send_piece(self, run_task: ResolvedRunTask, piece: Piece, version: str) -> None:
        partly = self._partly.setdefault(piece.shard, set())
        scored = any(one.scores for one in piece.exchanges)
        fresh = [one for one in piece.exchanges if scored or one.sample.id not in partly]
        for start in range(0, len(fresh), self._sink.at_once):
            batch = fresh[start : start + self._sink.at_once]
            new = self._sink.exchanges(run_task, batch)
            self.sent.exchanges += min(new, sum(one.sample.id not in partly for one in batch))
            partly.update(one.sample.id for one in batch)
            self._beat(self.sent)
        if piece.whole:
            self._note(self._what, piece.shard, version)

    def _send_table(self, run_task: ResolvedRunTask, found: Iterator[Piece]) -> None:
        exchanges: list[Exchange] = []
        for piece in found:
            exchanges += piece.exchanges
            self._beat(self.sent)
        rows = [(one.sample.id, one.response.text, sorted(one.scores.items())) for one in exchanges]
        digest = hashlib.sha256(repr(rows).encode()).hexdigest()
        if exchanges and self._notes.get("table", run_task.name) != digest:
            self.sent.exchanges += self._sink.exchanges(run_task, exchanges)
            self._note("table", run_task.name, digest)
        self._beat(self.sent)

    def _progress(self, run_task: ResolvedRunTask) -> None:
        """Send the number of answers, if it changed."""
        states = shard_states(self._experiment, [run_task.name])
        answered = sum(one.answered for one in states)
        if answered and self._notes.get("answered", run_task.name) != str(answered):
            self._sink.progress(run_task, {"live.answered": float(answered)}, answered)
            self._note("answered", run_task.name, str(answered))


def _digest(experiment: Experiment, run_task: ResolvedRunTask) -> str:
    """Hash of a run task's scores; empty where there are none."""
    for path in scores_file(experiment, run_task.name).values():
        return hash_file(path)[:8]
    return ""
