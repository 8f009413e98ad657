"""The part of the experiment's budget that one worker may still spend."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from hpcbench.experiment.budget import Ledger, binds, caps_of, cost_of, ends
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Request, Response
from hpcbench.schema.spending import Amount
from hpcbench.worker.event_log import WorkerEvents

SHARE = 4
"""A slice is at most this part of what is left for each worker, so that a dead worker holds little."""


class BudgetShare:
    """The slices of a worker.

    Args:
        experiment: the experiment.
        worker: the worker's id.
        workers: number of workers of its group.
        events: the worker's log.
    """

    def __init__(
        self, experiment: Experiment, worker: str, workers: int, events: WorkerEvents
    ) -> None:
        self._experiment, self._worker, self._events = experiment, worker, events
        self._workers = max(1, workers)
        self.caps = caps_of(experiment)
        """The budget; it is fixed while a worker runs."""
        self._ledger = Ledger(experiment)
        self._taking, self._counting = threading.Lock(), threading.Lock()
        """Held while a slice is taken, in a thread that a cancellation does not end; and by each sum."""
        self._left = Amount()
        """Rest of the slices, without the reserve for requests in flight."""
        self._spent, self._reserved = Amount(), dict[int, Amount]()
        self._reported = Amount()
        self._dearest: dict[tuple[str, str], Amount] = {}
        """Run task and model → the most that one of its requests took, by kind."""
        self._matters = False
        """Whether a request costs money, or has a limit."""
        self.empty = False
        """Whether the budget does not suffice for another request."""
        self._returned = asyncio.Event()
        """Set when a request in flight took less than was reserved for it, or the budget is used up."""

    def of(self, run_task: ResolvedRunTask) -> TaskBudgetShare:
        """The share for a run task's requests. Those that no budget limits count for a later budget."""
        if binds(self.caps, run_task) or run_task.model.prices is not None:
            self._matters = True
        return TaskBudgetShare(self, run_task)

    def rests(self, run_task: ResolvedRunTask) -> bool:
        """Whether nothing more of a run task can be paid."""
        return self.empty and ends(self.caps, self._experiment, run_task)

    async def reserve(self, run_task: ResolvedRunTask, request: Request) -> bool:
        """Reserve what a request may take; False: the budget is used up.

        If less is left it waits for requests in flight: most take less than was reserved for them.
        """
        likely = self._likely(run_task, request)
        if binds(self.caps, run_task):
            while not self.empty and not self.caps.only(self._left).covers(
                limited := self.caps.only(likely)
            ):
                self._returned.clear()
                if await asyncio.to_thread(self._refill, limited):
                    continue
                if self._reserved:
                    await self._returned.wait()
                else:
                    self.empty = True
                    self._returned.set()
                    await asyncio.to_thread(self._report_empty, limited)
                likely = self._likely(run_task, request)
            if self.empty:
                return False
        with self._counting:
            self._left = self._left.minus(likely)
        self._reserved[id(request)] = likely
        return True

    def release(self, request: Request) -> None:
        """A request is not sent after all."""
        with self._counting:
            self._left = self._left.plus(self._reserved.pop(id(request)))
        self._returned.set()

    def spend(self, run_task: ResolvedRunTask, request: Request, response: Response | None) -> None:
        """Count what a request took; None: its answer is lost, so what was reserved counts."""
        reserved = self._reserved.pop(id(request))
        took = reserved
        if response is not None:
            used = response.usage or {}
            prompt, answer = (
                int(used.get(f"{one}_tokens") or 0) for one in ("prompt", "completion")
            )
            images = len(response.image_sha256) if response.tries else 0
            cost = cost_of(run_task, prompt, answer, images)
            took = Amount(response.tries, prompt + answer, cost)
            counted = prompt + answer > 0
            answered = response.outcome not in ("failed", "invalid")
            uncounted = response.lost + (answered and not counted)
            if counted or uncounted:  # a refusal does not show what an answer takes
                self._remember(run_task, took if counted else took.most(reserved))
            expected = reserved._replace(requests=0).times(uncounted)
            took = took.plus(expected) if counted else took.most(expected)
        with self._counting:
            self._left = self._left.plus(reserved).minus(took)
        self._spent = self._spent.plus(took)
        self._returned.set()

    def _remember(self, run_task: ResolvedRunTask, took: Amount) -> None:
        """Remember the most that one request of a run task to its model took."""
        of = run_task.name, run_task.model.name
        self._dearest[of] = self._dearest.get(of, Amount()).most(took._replace(requests=1))

    def tell(self, *, final: bool = False) -> None:
        """Log what is spent, with the requests in flight, if it changed: it counts if the worker dies.

        Where it costs no money and has no limit, it is logged at the end only.
        """
        whole = self._whole()
        if whole != self._reported and (final or self._matters):
            self._reported = whole
            self._events.write("budget", spent=_rounded(whole))

    def close(self) -> None:
        """Return what is left; no request is in flight."""
        self.tell(final=True)
        with self._taking:
            if self._worker in self._ledger.held():
                self._ledger.give_back(self._worker, self._left)

    def _likely(self, run_task: ResolvedRunTask, request: Request) -> Amount:
        """Expected cost of a request: that of the dearest so far; at first of an answer of full length."""
        known = self._dearest.get((run_task.name, run_task.model.name))
        if known is not None:
            return known
        answer = int(request.generation.get("max_tokens") or 0)
        images = sum(len(one.images) for one in request.messages)
        return Amount(1, answer, cost_of(run_task, 0, answer, images))

    def _refill(self, likely: Amount) -> bool:
        """Take a slice; small ones at first, then as much as was spent so far. False: too little is left."""
        with self._taking:
            least = likely.minus(self.caps.only(self._left)).most(Amount())
            wanted = self.caps.only(self._whole()).plus(likely)
            left = self.caps.most.minus(self._ledger.taken())
            share = left.times(1 / (SHARE * self._workers))
            part = self._ledger.take(
                self._worker, wanted.least(share).whole().most(least), least, self.caps
            )
            if part is None:
                return False
            with self._counting:
                self._left = self._left.plus(part)
            return True

    def _report_empty(self, likely: Amount) -> None:
        """Record that nothing more is asked; each worker may leave what pays no request."""
        with self._taking:
            self._ledger.report_over(self._worker, self.caps, likely.times(self._workers))

    def _whole(self) -> Amount:
        """The spent amount, with the requests in flight."""
        whole = self._spent
        for one in tuple(self._reserved.values()):
            whole = whole.plus(one)
        return whole


class TaskBudgetShare:
    """The share for one run task's requests, as `drive` uses it."""

    def __init__(self, share: BudgetShare, run_task: ResolvedRunTask) -> None:
        self._share, self._run_task = share, run_task

    async def reserve(self, request: Request) -> bool:
        """Reserve what a request may take; False: the budget is used up."""
        return await self._share.reserve(self._run_task, request)

    def release(self, request: Request) -> None:
        """A request is not sent after all."""
        self._share.release(request)

    def spend(self, request: Request, response: Response | None) -> None:
        """Count what a request took; None: its answer is lost."""
        self._share.spend(self._run_task, request, response)


def _rounded(amount: Amount) -> dict[str, Any]:
    return {name: round(one, 9) for name, one in amount._asdict().items()}
