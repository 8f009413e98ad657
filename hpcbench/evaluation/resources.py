"""Resource metrics of whole run tasks, from figures that are measured already.

`performance.json` has rates and memory, monitors have power, the site profile or the model has a price. A
metric without its basis has no value, never 0, and says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hpcbench import statistics
from hpcbench.evaluation.score_tables import RunFigure, Scored
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.experiment.view.performance_json import Figure, Memory, Speed, Trajectories
from hpcbench.experiment.view.readings import GpuUse, readings
from hpcbench.experiment.view.scores import ScoresFiles, rows_of
from hpcbench.metrics.resources import Cost
from hpcbench.schema.agent import READER
from hpcbench.schema.model import Model, Prices
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED

ONE_VALUE = "undefined: one value of the run"
"""Why a figure has no interval: only runs beside each other show its spread."""

SLICES = "Student's t over slices of the steady window"
"""Method of the interval of rates."""

TOO_SHORT = "undefined: the steady window is too short"
_REUSED = "earlier experiments asked for all its answers; `hpcbench submit --fresh` measures"


def with_figures(
    experiment: Experiment, scored: Sequence[Scored], speeds: Mapping[str, Speed]
) -> list[Scored]:
    """Scores with the resource metrics that have one value for the whole of a run task.

    Args:
        experiment: the experiment.
        scored: scores of run tasks; `of_run` names these metrics.
        speeds: run task → its speed; run tasks without such metrics need none.
    """
    monitors = _Monitors(experiment)
    return [
        _with_figures(experiment, one, speeds[one.run_task.name], monitors) if one.of_run else one
        for one in scored
    ]


def _with_figures(
    experiment: Experiment, scored: Scored, speed: Speed, monitors: _Monitors
) -> Scored:
    run = _Run(experiment, scored.run_task, speed, scored.place, monitors)
    return replace(scored, figures={name: run.figure(one) for name, one in scored.of_run.items()})


def cost_of(experiment: Experiment, run_task: ResolvedRunTask, speed: Speed) -> RunFigure:
    """The metric `cost` of an evaluated run task, whether or not its plan names it."""
    place = ScoresFiles(experiment.scores_dir, run_task.name)
    return _Run(experiment, run_task, speed, place, _Monitors(experiment)).figure(Cost())


@dataclass
class _Monitors:
    """The monitors of all workers, read once for all run tasks, when a metric needs them."""

    experiment: Experiment

    @cached_property
    def energy(self) -> Sequence[Mapping[str, float]]:
        """Run task → watt-hours of the GPUs, for each monitor."""
        return [GpuUse.of(one).energy for one in readings(self.experiment)]


class _Run:
    """The figures of one run task; each is computed when a metric needs it."""

    def __init__(
        self,
        experiment: Experiment,
        run_task: ResolvedRunTask,
        speed: Speed,
        place: ScoresFiles,
        monitors: _Monitors,
    ) -> None:
        self.experiment, self.run_task, self.speed = experiment, run_task, speed
        self.monitors = monitors
        frame = rows_of(place.scores, ["sample", "document", "outcome"])
        answered = frame.filter(frame["outcome"].is_in(list(ANSWERED)))
        self.documents = answered.select("sample", "document")
        """Sample → document, of answered samples."""
        self.answered = answered.height
        """Answers, also those of earlier experiments."""
        self.agents = speed.trajectories or Trajectories()
        self.beside = experiment.resolved.beside(run_task)
        """The models that an agent uses beside its own."""
        asked = (speed.answered or 0) + self.agents.measured
        self.measured = min(asked, self.answered) if self.answered else 0
        """Answers that this experiment asked for."""
        self.rate = speed.answers_per_s or self.agents.samples_per_s
        """Answers per second of one engine."""
        each = int(answered["document"].n_unique()) / self.answered if self.answered else 0.0
        self.documents_per_answer = each

    def figure(self, metric: Any) -> RunFigure:
        """The value of a metric."""
        documents = round(self.measured * self.documents_per_answer)
        empty = RunFigure(
            metric, metric.unit, n=self.measured, documents=documents, signature=metric.signature
        )
        found = _FIGURES[metric.name](self, empty)
        return found if found.value is not None else replace(found, n=0, documents=0)

    def tokens_per_second(self, empty: RunFigure) -> RunFigure:
        """Tokens per second of one engine."""
        if self.agents.samples:
            return replace(empty, method="an agent's tokens come in turns, with tools between them")
        if self.speed.answers_per_s is not None and self.speed.tokens_per_s is None:
            return replace(empty, method="the engine did not count the tokens of every answer")
        return self._rate(empty, self.speed.tokens_per_s, 1.0)

    def documents_per_hour(self, empty: RunFigure) -> RunFigure:
        """Documents per hour of one engine."""
        return self._rate(empty, self.rate, self.documents_per_answer * 3600)

    def _rate(self, empty: RunFigure, rate: Figure | None, factor: float) -> RunFigure:
        if rate is None or not rate.value or not factor:
            return replace(empty, method=self._why_no_rate())
        value, low, high = (
            None if end is None else end * factor for end in (rate.value, rate.low, rate.high)
        )
        method = SLICES if low is not None else TOO_SHORT
        return replace(empty, value=value, low=low, high=high, method=method)

    def _why_no_rate(self) -> str:
        if self.answered and not self.measured:
            return _REUSED
        every = (*self.speed.notes, *self.agents.notes)
        notes = [one for one in every if one.startswith("no steady rates")]
        return notes[0] if notes else "no answer was measured"

    def peak_gpu_memory(self, empty: RunFigure) -> RunFigure:
        """Greatest memory of one GPU, GiB."""
        peak = (self.speed.memory or Memory()).gpu_peak
        if peak is None:
            return replace(empty, method=self._why_no_gpu("memory"))
        return replace(empty, value=peak / 2**30, method=ONE_VALUE)

    def energy(self, empty: RunFigure) -> RunFigure:
        """Energy of the GPUs, Wh per 1,000 documents."""
        phase = self.run_task.name
        try:
            known = [one[phase] for one in self.monitors.energy if phase in one]
        except (OSError, ValueError, KeyError, TypeError) as error:
            return replace(empty, method=f"a monitor's readings are damaged: {error}")
        if not sum(known):
            return replace(empty, method=self._why_no_gpu("power"))
        workers = sum(one.workers for one in self.speed.hardware or ())
        if len(known) < workers:
            why = (
                f"only {len(known)} of {workers} workers have a monitor that read the power of GPUs"
            )
            return replace(empty, method=why)
        if not empty.documents:
            return replace(empty, method=self._why_no_rate())
        return replace(empty, value=math.fsum(known) / empty.documents * 1000, method=ONE_VALUE)

    def _why_no_gpu(self, what: str) -> str:
        if self.answered and not self.measured:
            return _REUSED
        if not self.run_task.model.gpus:
            return f"model '{self.run_task.model.name}' uses no GPU"
        return f"no monitor of its workers read the {what} of a GPU"

    def cost(self, empty: RunFigure) -> RunFigure:
        """Price of 1,000 documents: what the model's provider charges, else the GPUs at the steady rate."""
        site, prices = self.experiment.resolved.site, self.run_task.model.prices
        currency = site.currency if prices is None else prices.currency
        empty = replace(
            empty,
            unit=_unit(empty.metric, currency),
            signature=empty.signature.replace("|", f"|currency:{currency or 'none'}|", 1),
        )
        if self.beside and (prices or any(one.model.prices for one in self.beside.values())):
            return self._charged_by_several(empty, currency)
        if prices is not None:
            return self._charged(empty, prices)
        if site.gpu_hour_price is None:
            return replace(empty, method=f"site profile '{site.name}' has no gpu_hour_price")
        if not (gpus := self._gpus()):
            return replace(empty, method=f"model '{self.run_task.model.name}' uses no GPU")
        hourly = self._rate(empty, self.rate, self.documents_per_answer * 3600)
        if hourly.value is None:
            return hourly
        price = gpus * site.gpu_hour_price * 1000
        ends = [
            None if end is None or end <= 0 else price / end for end in (hourly.high, hourly.low)
        ]
        low, high = ends if None not in ends else (None, None)
        return replace(hourly, value=price / hourly.value, low=low, high=high)

    def _charged(self, empty: RunFigure, prices: Prices) -> RunFigure:
        """A provider's charge for the answers; those of earlier experiments took as many tokens."""
        columns = ("sample", "prompt_tokens", "completion_tokens", "images")
        charged: dict[str, float] = {}
        answers = uncounted = 0
        for frame in answer_frames(self.experiment, self.run_task.name, columns=columns):
            known = frame.join(self.documents, on="sample")
            for document, *used in known.select("document", *columns[1:]).iter_rows():
                answers += 1
                uncounted += None in used[:2]
                cost = prices.cost(*(one or 0 for one in used))
                charged[document] = charged.get(document, 0.0) + cost
        if not charged:
            return replace(empty, method="no sample was answered")
        if uncounted:
            why = f"the engine did not count the tokens of {uncounted} of {answers} answers"
            return replace(empty, method=why)
        return _mean_charge(empty, charged, answers)

    def _charged_by_several(self, empty: RunFigure, currency: str) -> RunFigure:
        """The charge for an agent with several models, each turn at the prices of its model."""
        agent, charged, answers = self.run_task.agent, dict[str, float](), 0
        assert agent is not None
        models = {name: one.model for name, one in self.beside.items()}
        for model in (self.run_task.model, *models.values()):
            if model.prices is None or model.prices.currency != currency:
                why = (
                    f"model '{model.name}' of the agent has no prices in {currency or 'a currency'}"
                )
                return replace(empty, method=why)
        of = {name: role.model_of for name, role in agent.agents.items()} | {READER: agent.reader}
        document = dict(self.documents.iter_rows())
        for _, found in answers_of(self.experiment, self.run_task.name):
            for sample, response in found.items():
                if sample not in document:
                    continue
                work = response.trajectory or {}
                counts = Counter({**(response.usage or {}), "images": work.get("images", 0)})
                cost = 0.0
                for name, used in work.get("by", {}).items():
                    if (whose := of.get(name)) is not None:
                        cost += _price(models[whose], used)
                        # Images of the reader's requests are not among those of the turns.
                        counts.subtract({**used, "images": 0} if name == READER else used)
                answers += 1
                cost += _price(self.run_task.model, counts)
                charged[document[sample]] = charged.get(document[sample], 0.0) + cost
        if not charged:
            return replace(empty, method="no sample was answered")
        return _mean_charge(empty, charged, answers)

    def _gpus(self) -> int:
        """GPUs of a worker: its engine's, as it saw them or the model's definition says, and those of the
        engines beside it."""
        seen = {len(one.gpus) for one in self.speed.hardware or () if one.gpus}
        own = seen.pop() if len(seen) == 1 else self.run_task.model.gpus
        return own + self.experiment.resolved.gpus_beside(self.run_task)


def _price(model: Model, used: Mapping[str, int]) -> float:
    assert model.prices is not None
    counts = (used.get(one, 0) for one in ("prompt_tokens", "completion_tokens", "images"))
    return model.prices.cost(*counts)


def _mean_charge(empty: RunFigure, charged: Mapping[str, float], answers: int) -> RunFigure:
    """The mean charge of documents, for 1,000."""
    found = statistics.mean_interval([1000 * one for one in charged.values()])
    return replace(
        empty, value=found.estimate, low=found.low, high=found.high,
        n=answers, documents=len(charged), method=found.method,
    )  # fmt: skip


_FIGURES: Mapping[str, Callable[[_Run, RunFigure], RunFigure]] = {
    "cost": _Run.cost,
    "documents_per_hour": _Run.documents_per_hour,
    "energy": _Run.energy,
    "peak_gpu_memory": _Run.peak_gpu_memory,
    "tokens_per_second": _Run.tokens_per_second,
}
"""Name of a metric's class → how it is computed."""


def empty_figures(metrics: Mapping[str, Any], why: str) -> dict[str, RunFigure]:
    """The figures of metrics for which nothing was measured at all."""
    return {
        name: RunFigure(one, _unit(one), method=why, signature=one.signature)
        for name, one in metrics.items()
    }


def _unit(metric: Any, currency: str = "") -> str:
    unit: str = metric.unit.format(currency=currency)
    return unit.strip()
