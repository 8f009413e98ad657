"""The budget of an experiment: requests, tokens and money that all its workers may spend together.

Workers take slices of the budget before they send. A record is a file `budget/NNNNN.json`, created
exclusively and never changed, so all records have one order and no two workers get the same slice:

- `take`: a worker has this slice for itself;
- `back`: a worker that ends returns what it did not spend of its slices;
- `gone`: the same for a worker that died, by its last event `budget`; written when no worker is left. A
  worker without a budget has no slices, so all that it spent is beyond them;
- `over`: a worker can pay no request, and this is how a run ends: its amount is what may be left then, as
  each worker may return a part that pays none.

A worker that dies keeps its slices until then, so others never spend them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment, decoding
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import create_exclusive, read_lines
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.spending import EPSILON, Amount, BudgetCaps, in_words

Word = Literal["take", "back", "gone", "over"]


def caps_of(experiment: Experiment) -> BudgetCaps:
    """The budget now: the plan's, with what users gave to `resume`."""
    return experiment.planned.budget.changed(control_state(experiment).budget)


def binds(caps: BudgetCaps, run_task: ResolvedRunTask) -> bool:
    """Whether the budget limits requests of a run task to its model: one of money only if that has prices."""
    if caps.max_requests is not None or caps.max_tokens is not None:
        return True
    return caps.max_cost is not None and run_task.model.prices is not None


def ends(caps: BudgetCaps, experiment: Experiment, run_task: ResolvedRunTask) -> bool:
    """Whether a budget that is used up ends a run task: it limits one of its models."""
    return binds(caps, run_task) or any(
        binds(caps, one) for one in experiment.resolved.beside(run_task).values()
    )


def cost_of(run_task: ResolvedRunTask, prompt: int, answer: int, images: int) -> float:
    """Money for a request; 0 where its model has no prices."""
    prices = run_task.model.prices
    return 0.0 if prices is None else prices.cost(prompt, answer, images)


_LEAST = Amount(1, 1, 2 * EPSILON)
"""Less pays no request."""


@dataclass
class _State:
    taken: Amount = Amount()
    """Slices without what came back."""
    over: Mapping[str, Any] | None = None
    """The budget that a worker found used up; None: none did."""
    rest: Amount = Amount()
    """The rest of that budget which may be left."""


class Ledger:
    """The records; each look reads only new ones."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment, self._next = experiment, 1
        self._state = _State()
        self._slices: dict[str, Amount] = {}
        """Worker → its slices that have not come back."""
        self._settled: set[str] = set()
        """Workers of which all counts."""

    def taken(self) -> Amount:
        """The amount that is spent or held by workers."""
        self._look()
        return self._state.taken

    def held(self) -> Mapping[str, Amount]:
        """Worker → its slices that have not come back."""
        self._look()
        return {name: one for name, one in self._slices.items() if any(one)}

    def settled(self, worker: str) -> bool:
        """Whether a worker has given its slices back."""
        self._look()
        return worker in self._settled

    def over(self, caps: BudgetCaps) -> bool:
        """Whether so little is left that nothing more is asked."""
        left = caps.most.minus(self.taken())
        return not left.covers(caps.only(_LEAST).most(self._rest(caps)))

    def take(self, worker: str, wanted: Amount, least: Amount, caps: BudgetCaps) -> Amount | None:
        """Take a slice.

        Args:
            worker: its id.
            wanted: a slice as large as that, if there is so much.
            least: no smaller one.
            caps: the budget.

        Returns:
            The slice; None: there is not so much left.

        Raises:
            OSError: the disk is full or gone.
        """
        while True:
            left = caps.most.minus(self.taken())
            if not left.covers(least):
                return None
            part = wanted.least(left).most(least)
            if self._write("take", worker, part):
                return part

    def give_back(self, worker: str, rest: Amount, *, gone: bool = False) -> None:
        """Return what a worker did not spend, which is negative where it spent more; it takes no more."""
        word: Word = "gone" if gone else "back"
        while not self._write(word, worker, rest):
            if self.settled(worker):
                return  # another process did

    def report_over(self, worker: str, caps: BudgetCaps, rest: Amount) -> None:
        """Record that the budget does not suffice for another request, if so much or less is left."""
        rest = caps.only(rest)
        while not self._rest(caps).covers(rest):
            self._write("over", worker, rest, caps)

    def _rest(self, caps: BudgetCaps) -> Amount:
        """The rest that may be left of this very budget; 0: no worker found it used up."""
        self._look()
        return self._state.rest if self._state.over == caps._asdict() else Amount()

    def _write(
        self, word: Word, worker: str, amount: Amount, caps: BudgetCaps | None = None
    ) -> bool:
        """Write the next record; False: another process did, and it was read."""
        record = {"budget": word, "worker": worker, **amount._asdict()}
        if caps is not None:
            record["caps"] = caps._asdict()
        written = create_exclusive(self._file, record)
        self._look()
        return written

    @property
    def _file(self) -> Path:
        """The next record's."""
        return self._experiment.budget_dir / f"{self._next:05d}.json"

    def _look(self) -> None:
        while record := next(read_lines(self._file), None):
            with decoding(self._file):
                self._read(record)
            self._next += 1

    def _read(self, record: Mapping[str, Any]) -> None:
        worker, amount, state = str(record["worker"]), Amount.of(record), self._state
        word: Word = record["budget"]
        if word == "over":
            before = state.rest if state.over == record["caps"] else Amount()
            state.over, state.rest = record["caps"], amount.most(before)
        elif word == "take":
            state.taken = state.taken.plus(amount)
            self._slices[worker] = self._slices.get(worker, Amount()).plus(amount)
        else:
            state.taken = state.taken.minus(amount)
            self._slices.pop(worker, None)
            self._settled.add(worker)


def settle(experiment: Experiment) -> Ledger:
    """Return what dead workers did not spend, and count what workers without a budget spent.

    Call it only while no worker is alive.

    By its last event a worker has spent `used`, and its requests in flight at that time count as answered.
    The requests that it sent after that event are not known.
    """
    ledger = Ledger(experiment)
    held = ledger.held()
    last = {run.id: run.spent for run in worker_runs(experiment) if run.spent is not None}
    for worker in {**held, **last}:
        if not ledger.settled(worker):
            slices, spent = held.get(worker, Amount()), last.get(worker, Amount())
            ledger.give_back(worker, slices.minus(spent), gone=True)
    return ledger


def why_over(caps: BudgetCaps, spent: Amount, currency: str) -> str:
    """Why nothing more is asked, for people."""
    return f"the rest is not asked: budget ({in_words(spent, caps, currency)} spent)"
