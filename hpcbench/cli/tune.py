"""`hpcbench tune`: find the fastest settings of a model's engine, by duels on the same nodes."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hpcbench import number_format as form
from hpcbench import plugins
from hpcbench.cli.ab import arms_of
from hpcbench.cli.output import console, follow, print_json, say, table
from hpcbench.cli.plan_names import named_plan, plan_called
from hpcbench.cli.submit import prepared_once
from hpcbench.comparison.ab import PairOfBlocks, compare_speed, job_rate
from hpcbench.comparison.tuning import (
    AT_ONCE,
    BY_JOBS,
    CONCURRENCY,
    REPLICAS,
    Duel,
    Knob,
    Settings,
    search,
)
from hpcbench.errors import UserError
from hpcbench.experiment.interim import looks_at
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.ab import expanded
from hpcbench.registry.catalog import FOLDERS, Catalog
from hpcbench.registry.resource_shapes import most_engines
from hpcbench.registry.settings import read_value
from hpcbench.registry.starter import plan_text
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Arms, ResolvedPlan
from hpcbench.submit.plan_packages import Packages, load_with_packages
from hpcbench.submit.preview import read_only
from hpcbench.submit.rounds import cancel, submit_first

FIGURE = "answers_per_s"

MODEL = "model."
OPTIONS = "model.engine_options."

JOB_PAIRS = 4
"""Pairs of jobs in a duel of numbers of engines: Student's t over them has two degrees of freedom."""


def tune(arguments: argparse.Namespace) -> int:
    """`hpcbench tune MODEL --dataset D`, or `hpcbench tune PLAN`."""
    with tempfile.TemporaryDirectory(prefix="hpcbench-tune-") as folder:
        plan = _plan(arguments, Path(folder))
        resolved, _ = read_only(plan, arguments.registry, arguments.settings)
        knobs = _knobs(resolved, getattr(arguments, "try"))
        if arguments.dry_run:
            for knob in knobs:
                print(f"{knob.path}: {_values(knob)}")
            return 0
        duels = Duels(arguments, plan)
        best, whole = search(knobs, duels.run)
    out = _write(arguments.out, resolved, best, duels.fought) if best else None
    if arguments.json:
        shown = [{**asdict(one), "won": one.won} for one in duels.fought]
        print_json(
            {
                "version": 1,
                "best": best,
                "ended": whole,
                "duels": shown,
                "overlay": out and str(out),
            }
        )
        return 0
    _print(duels.fought)
    _tell(best, whole=whole, overlay=out, registry=arguments.out)
    return 0


class Duels:
    """Duels within a budget of time.

    Args:
        arguments: the command line.
        plan: the plan's file.
    """

    def __init__(self, arguments: argparse.Namespace, plan: Path) -> None:
        self._arguments, self._plan = arguments, plan
        self._until = time.monotonic() + 60 * arguments.budget
        self.fought: list[Duel] = []

    def run(self, best: Settings, tried: Settings) -> Duel | None:
        """One duel; None: its time is over before it has a result."""
        if time.monotonic() > self._until:
            return None
        changed = {path: value for path, value in tried.items() if best.get(path) != value}
        say(f"duel {len(self.fought) + 1}: {' '.join(_texts(changed))}")
        run = self._by_turns if BY_JOBS.isdisjoint(changed) else self._by_jobs
        duel = run(best, tried)
        if duel is not None:
            self.fought.append(duel)
            say(f"  {_ratio(duel)}: {duel.verdict}")
        return duel

    def _by_turns(self, best: Settings, tried: Settings) -> Duel | None:
        """Both settings in turns in each job."""
        given = self._arguments
        arms = Arms(
            a=tuple(_texts(best)),
            b=tuple(_texts(tried)),
            metrics=(FIGURE,),
            margins={FIGURE: given.margin},
            alpha=given.alpha,
        )
        resolved, packages = arms_of(
            self._plan,
            arms,
            partial(load_with_packages, say=say),
            registries=given.registry,
            settings=given.settings,
            limit=given.limit,
            options={},
        )
        experiment = prepared_once(resolved, self._plan, packages)
        return _result(experiment, best, tried) if self._ended(experiment) else None

    def _by_jobs(self, best: Settings, tried: Settings) -> Duel | None:
        """A job with either setting, in turns: engines that share a node cannot take turns within a job.

        The answers are not compared: the engines are the same.
        """
        pairs: dict[str, list[PairOfBlocks]] = {}
        sides = self._one_job(best), self._one_job(tried)
        for number in range(JOB_PAIRS):
            rates = {}
            for mine in (False, True) if number % 2 == 0 else (True, False):
                resolved, packages = sides[mine]
                experiment = prepared_once(resolved, self._plan, packages)
                if not self._ended(experiment):
                    return None
                known = outcome(experiment)
                rates[mine] = {
                    one.name: job_rate(experiment, one.name)
                    for one in experiment.resolved.run_tasks
                    if known is not None and known.state == "done"
                }
            for name, a in rates[False].items():
                if a and (b := rates[True].get(name)):
                    block = PairOfBlocks(number, experiment.id, number % 2 == 0, {FIGURE: (a, b)})
                    pairs.setdefault(name, []).append(block)
        level = 1 - self._arguments.alpha
        found = [
            compare_speed(own, FIGURE, level, self._arguments.margin) for own in pairs.values()
        ]
        duels = [
            Duel(tried, best, experiment.id, one.verdict, one.ratio, one.low, one.high, one.pairs)
            for one in found
            if one is not None
        ]
        nothing = Duel(tried, best, experiment.id, "inconclusive")
        return min(duels, key=_gain, default=nothing)

    def _one_job(self, settings: Settings) -> tuple[ResolvedPlan, Packages]:
        """The plan as one job with all the engines that these settings ask for."""
        given = self._arguments
        base, _ = load_with_packages(self._plan, given.registry, given.settings, say=say)
        own = ["parallelism=1", "workers=all", "stages=[inference]", f"limit={given.limit}"]
        texts = [*given.settings, *expanded(base, [*own, *_texts(settings)])]
        return load_with_packages(self._plan, given.registry, texts, say=say)

    def _ended(self, experiment: Experiment) -> bool:
        """Submit a step and wait for its end; False: the budget or the user ended it, and it is cancelled."""
        from hpcbench.status import ENDED

        submit_first(experiment)
        try:
            status = follow(experiment, silent=True, until=self._until)
        except KeyboardInterrupt:
            status = None
        if status is None or status.state not in ENDED:
            cancel(experiment)
            return False
        if status.state != "done":
            why = status.reason or f"`hpcbench status {experiment.id}`"
            say(f"  {experiment.id} is {status.state}: {why}")
        return True


def _plan(arguments: argparse.Namespace, folder: Path) -> Path:
    """The plan's file; of a model and a dataset, a plan of one run task.

    Raises:
        UserError: no plan answers to the word, or two do; a model without a dataset.
    """
    path = Path(arguments.what)
    if not arguments.dataset:
        if path.is_file():
            return path
        if named := named_plan(arguments.what, arguments.registry):
            return named
        if Catalog(arguments.registry).key(FOLDERS[Model], arguments.what) is not None:
            what = f"model '{arguments.what}' needs a dataset"
            raise UserError(what, remedy="--dataset NAME, or name a plan")
        return plan_called(path, arguments.registry)
    if path.suffix in (".yaml", ".yml"):
        raise UserError("--dataset belongs to a model's name", file=path, remedy="leave it out")
    text = plan_text(
        "tune", ml_task=arguments.task, model=arguments.what, dataset=arguments.dataset
    )
    made = folder / "tune.yaml"
    made.write_text(text)
    return made


def _knobs(resolved: ResolvedPlan, tried: Sequence[str]) -> list[Knob]:
    """The user's knobs, else those of the engine and the requests in flight.

    Raises:
        UserError: the plan has several models, or a knob is wrong.
    """
    models = {one.model.name: one.model for one in resolved.run_tasks}
    if len(models) > 1:
        what = f"the plan has {len(models)} models: {', '.join(models)}"
        raise UserError(
            what, remedy="tune one model: `only:` in the plan, or --set only=[RUN_TASK]"
        )
    (model,) = models.values()
    if tried:
        return [_said(text) for text in tried]
    at_once = {one.in_flight for one in resolved.run_tasks if one.in_flight}
    used = min(at_once) if len(at_once) == 1 else None
    found = [Knob.around(CONCURRENCY, used, AT_ONCE)]
    engine = plugins.load("engines", model.engine)
    known = {name.replace("-", "_"): value for name, value in model.engine_options.items()}
    for option, (default, values) in getattr(engine, "tuned_options", {}).items():
        here = known.get(option, default)
        if isinstance(here, str | int | float | bool | None):
            found.append(Knob.around(OPTIONS + option, here, values))
    site = resolved.site if resolved.executor == "slurm" else None
    most = min(most_engines(model, one.task.resources, site) for one in resolved.run_tasks)
    if most > 1:
        powers = [2**power for power in range(most.bit_length()) if 2**power < most]
        found.append(Knob.around(REPLICAS, model.replicas_per_node, (*powers, most)))
    return found


def _said(text: str) -> Knob:
    """A knob of `--try PATH=V1,V2`; the plan's own value comes before all."""
    path, equals, values = text.partition("=")
    found = read_value(f"--try {text}", f"[{values}]") if equals and values else None
    if not found or not all(isinstance(one, str | int | float | bool) for one in found):
        remedy = "such as --try model.engine_options.max_num_seqs=64,128,256"
        raise UserError(f"--try {text}: PATH=VALUE,VALUE is expected", remedy=remedy)
    return Knob(path, (None, *found))


def _texts(settings: Settings) -> list[str]:
    return [f"{path}={yaml.safe_dump(value).split(chr(10))[0]}" for path, value in settings.items()]


def _values(knob: Knob) -> str:
    shown = ["as it is" if one is None else str(one) for one in knob.values]
    shown[knob.start] = f"[{shown[knob.start]}]"
    return ", ".join(shown)


def _result(experiment: Experiment, best: Settings, tried: Settings) -> Duel:
    """The result of a duel over all run tasks: that of the one with the least gain."""
    found: list[Duel] = []
    for pair in experiment.resolved.pairs:
        look: Mapping[str, Any] = next(iter(reversed(looks_at(experiment, pair))), {})
        rows = [one for one in look.get("speed", ()) if one["figure"] == FIGURE]
        worse = tuple(one["metric"] for one in look.get("quality", ()) if one["verdict"] == "worse")
        if not rows:
            found.append(Duel(tried, best, experiment.id, "inconclusive", worse=worse))
            continue
        (row,) = rows
        span = row["low"], row["high"]
        known = row["verdict"], row["ratio"], *span, row["pairs"]
        found.append(Duel(tried, best, experiment.id, *known, worse))
    return min(found, key=_gain)


def _gain(duel: Duel) -> tuple[bool, float]:
    """Sorts results: the least gain first."""
    return duel.won, duel.ratio or 0.0


def _ratio(duel: Duel) -> str:
    if duel.ratio is None:
        return "no pair of blocks"
    span = f" [{duel.low:.3f}, {duel.high:.3f}]" if duel.low is not None and duel.high else ""
    return f"× {duel.ratio:.3f}{span}"


def _print(duels: Sequence[Duel]) -> None:
    numbers = ("answers a second", "pairs")
    shown = table("tried", "against", *numbers, "verdict", "experiment", right=numbers)
    for one in duels:
        verdict = f"worse answers ({', '.join(one.worse)})" if one.worse else one.verdict
        mine = " ".join(_texts(one.settings)) or "as it is"
        shown.add_row(
            mine, " ".join(_texts(one.against)) or "as it is", _ratio(one), str(one.pairs), verdict,
            one.experiment,
        )  # fmt: skip
    console().print(shown)


def _tell(best: Settings, *, whole: bool, overlay: Path | None, registry: Path) -> None:
    if not whole:
        print("the search did not come to its end: --budget gives it more minutes")
    if not best:
        print("no setting was faster than the plan as it is")
        return
    print(f"fastest: {' '.join(_texts(best))}")
    if overlay is not None:
        print(f"wrote {overlay}: `--registry {registry}` uses it with RUN_MODE=dev")
    if CONCURRENCY in best:
        print(f"write `concurrency: {best[CONCURRENCY]}` into the run task")


def _write(
    folder: Path, resolved: ResolvedPlan, best: Settings, duels: Sequence[Duel]
) -> Path | None:
    """Write the model's overlay with its evidence; None: the best settings are not the model's."""
    found: dict[str, Any] = {}
    for setting, value in best.items():
        if setting.startswith(MODEL):
            *above, key = setting.removeprefix(MODEL).split(".")
            part = found
            for step in above:
                part = part.setdefault(step, {})
            part[key] = value
    if not found:
        return None
    name = resolved.run_tasks[0].model.name
    path = folder / "models" / f"{name}.dev.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    evidence = "".join(f"# {line}\n" for line in _evidence(resolved, duels))
    write_atomic(path, evidence + yaml.safe_dump(found, sort_keys=False))
    return path


def _evidence(resolved: ResolvedPlan, duels: Sequence[Duel]) -> Iterator[str]:
    datasets = sorted({one.dataset.name for one in resolved.run_tasks})
    yield f"hpcbench tune, {time.strftime('%Y-%m-%d')}, on {form.few(datasets, 5)}"
    for one in duels:
        mine = " ".join(_texts(one.settings)) or "as it is"
        against = " ".join(_texts(one.against)) or "as it was"
        yield f"{mine} against {against}: {_ratio(one)}, {one.verdict} ({one.experiment})"
