"""Requests for a run task's samples: the rest of a shard, warm-up requests, and the time of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from hpcbench.data.datasets import Ranges, check_answers, samples, total
from hpcbench.errors import UserError
from hpcbench.experiment.claims import Claim
from hpcbench.inference.arrivals import constant, poisson
from hpcbench.inference.cache_busting import as_new
from hpcbench.judging.rated_answers import Judged, JudgedAnswers
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Request, Response, Sample, Times


class RequestBuilder:
    """Builds a run task's requests."""

    def __init__(
        self,
        run_task: ResolvedRunTask,
        dataset: DatasetIterator,
        chosen: Ranges,
        on_take: Callable[[Sample], None] = lambda sample: None,
        basis: str = "",
        judged: JudgedAnswers | None = None,
    ) -> None:
        self.run_task, self._dataset, self._chosen = run_task, dataset, chosen
        self._basis = basis
        """Key of all that determines the answers besides the requests; empty: not all of it is known."""
        self._on_take = on_take
        """Receives each sample that will be sent and counts."""
        self._prompt = TaskPrompt(run_task)
        self._judged = judged
        """The answers to rate; None: the run task is no judge."""

    def check(self, taken: Claim) -> None:
        """Check that the answered samples of a shard belong to it.

        Raises:
            UserError: an answered sample does not.
        """
        if taken.answered:
            places = self._chosen, taken.shard.start, taken.shard.stop
            here = {sample.id for sample in samples(self._dataset, *places, images=False)}
            check_answers(taken.answered, here, self.run_task.dataset.name)

    def left(self, taken: Claim, only: str | None = None) -> Iterator[Request]:
        """The unanswered samples of a shard, in the dataset's order; `only`: one sample of it."""
        for _, request in self.left_samples(taken, only):
            yield request

    def left_samples(
        self, taken: Claim, only: str | None = None
    ) -> Iterator[tuple[Sample, Request]]:
        """As `left`, each request with its sample."""
        shard = taken.shard
        judged = None if self._judged is None else self._judged.of(shard.start, shard.stop)
        for sample in samples(self._dataset, self._chosen, shard.start, shard.stop):
            if sample.id not in taken.answered and only in (None, sample.id):
                if judged is not None and sample.id not in judged:
                    continue  # see `nothing_to_judge`
                self._on_take(sample)
                yield sample, self._request(sample, None if judged is None else judged[sample.id])

    def nothing_to_judge(self, taken: Claim) -> Iterator[Response]:
        """A failed response for each open sample of a judge's shard that has no answer to rate."""
        if self._judged is None:
            return
        shard, judge = taken.shard, self.run_task.task.judge
        assert judge is not None
        judged = self._judged.of(shard.start, shard.stop)
        for sample in samples(self._dataset, self._chosen, shard.start, shard.stop, images=False):
            if sample.id not in taken.answered and sample.id not in judged:
                now = time.monotonic_ns()
                yield Response(
                    sample_id=sample.id,
                    outcome="failed",
                    text=None,
                    finish_reason=None,
                    usage=None,
                    times=Times(start=now, send=now, headers=None, chunks=(), done=now),
                    tries=0,  # never sent
                    image_sha256=(),
                    error=f"no answer of {' and '.join(judge.judged)} to judge",
                    prompt=self._prompt.name(sample),
                )

    def others(self, count: int, avoided: Collection[str] = ()) -> Iterator[Request]:
        """`count` uncounted requests: of samples outside the run, then of its own, made new to caches.

        Leaves out the `avoided` samples: an engine may not survive them.
        """
        given = 0
        for sample in self._apart(between(self._chosen, self._dataset.count()), count, avoided):
            try:
                request = self._request(sample)
            except UserError:  # no check has shown that its request can be built
                continue
            given += 1
            yield request
        for sample in self._apart(self._chosen, count - given, avoided):
            yield as_new(self._request(sample))

    def _apart(self, places: Ranges, count: int, avoided: Collection[str]) -> Iterator[Sample]:
        """`count` samples spread over the dataset, so that they are as different as the dataset is."""
        number = total(places)
        for turn in range(min(count, number)):
            at = turn * number // min(count, number)
            for place in range(at, min(at + 1 + len(avoided), number)):
                (sample,) = samples(self._dataset, places, place, place + 1)
                if sample.id not in avoided:
                    yield sample
                    break

    def arrivals(self, seed: int) -> Iterator[float] | None:
        """Times at which requests are due, if they are sent at a rate."""
        task = self.run_task.task
        if task.rate is None:
            return None
        return constant(task.rate) if task.arrival == "constant" else poisson(task.rate, seed)

    def _request(self, sample: Sample, judged: Judged | None = None) -> Request:
        messages, name = self._prompt.build(sample, judged), self._prompt.name(sample)
        timeout = self.run_task.task.request_timeout
        generation = self._prompt.generation
        return Request(sample.id, messages, generation, timeout, name, self._basis)


def between(ranges: Ranges, stop: int) -> list[tuple[int, int]]:
    """The gaps from 0 to `stop` between these ranges."""
    edges = [0, *(edge for one in ranges for edge in one), stop]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
