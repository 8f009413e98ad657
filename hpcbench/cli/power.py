"""`hpcbench power`: how many documents a comparison of two runs needs, or the effect it can detect."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from hpcbench import statistics
from hpcbench.cli.output import console, no_scores, print_json, say, table
from hpcbench.errors import RunFailed, UserError
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.view.scores import rows_of
from hpcbench.number_format import percent
from hpcbench.registry.catalog import user_site
from hpcbench.registry.fitting_metrics import is_resource

ALPHA, POWER = 0.05, 0.8
"""Rate of false alarms, two-sided; probability of detecting the difference."""
EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.1)
"""Differences in the table, if none is given."""
DEVIATION, CORRELATION = 0.5, 0.5
"""Assumed without data: the largest standard deviation of scores in [0, 1]; a correlation of one half."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variation of scores: assumed, or measured in an experiment."""

    run_task: str | None
    """Its run task; None: assumed."""
    metric: str | None
    """Its metric; None: assumed."""
    sd: float
    """Standard deviation of samples' scores."""
    icc: float
    """Correlation within documents."""
    questions: float
    """Mean number of samples per document."""
    cv: float
    """Standard deviation of the number of samples per document, divided by its mean."""
    step: float
    """Step between a sample's possible scores: 1 for right or wrong, 0 for graded scores."""
    documents: int | None
    """Number of documents; None: unknown."""


def power(arguments: argparse.Namespace) -> int:
    """`hpcbench power [EXPERIMENT] --effect E | --documents N`."""
    _check(arguments)
    experiment = None
    if arguments.experiment is not None:
        experiment = find(home(user_site()), arguments.experiment)
        spreads = list(_seen(experiment, arguments))
        if not spreads:
            raise RunFailed(
                f"{experiment.id} has no scores that differ, so their spread is unknown; "
                "give --sd, --questions-per-document and --icc instead"
            )
    else:
        spreads = [_supposed(arguments)]
    rho = CORRELATION if arguments.rho is None else arguments.rho
    try:
        rows = [row for one in spreads for row in _rows(one, arguments, rho)]
    except ValueError as wrong:
        raise UserError(str(wrong)) from None
    if arguments.json:
        print_json({"alpha": ALPHA, "power": POWER, "rho": rho, "rows": rows})
        return 0
    _print(rows, rho, _assumed(arguments), seen=experiment is not None)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.effect is not None and arguments.documents is not None:
        raise UserError(
            "--effect and --documents exclude each other: each computes the other",
            remedy="leave one out",
        )
    if arguments.effect is not None and not (arguments.effect and math.isfinite(arguments.effect)):
        what = f"--effect {arguments.effect} is not a finite number other than 0"
        raise UserError(what, remedy="for example --effect 0.03")
    fewest = statistics.fewest_documents(ALPHA)
    if arguments.documents is not None and arguments.documents < fewest:
        raise UserError(
            f"--documents {arguments.documents} is too small: fewer than {fewest} show no difference",
            remedy=f"give {fewest} or more",
        )
    questions = arguments.questions_per_document
    if questions is not None and not (questions >= 1 and math.isfinite(questions)):
        raise UserError(f"--questions-per-document {questions} is invalid", remedy="give 1 or more")
    if arguments.experiment is None and (arguments.run_task or arguments.metrics):
        what = "--run-task and --metrics need an experiment, as they choose among its scores"
        raise UserError(what, remedy="name an experiment")


def _supposed(arguments: argparse.Namespace) -> Spread:
    questions = arguments.questions_per_document
    return Spread(
        None,
        None,
        DEVIATION if arguments.sd is None else arguments.sd,
        arguments.icc or 0.0,
        questions or 1.0,
        _cv(arguments, 0.0, questions),
        1.0,
        None,
    )


def _cv(arguments: argparse.Namespace, seen: float, questions: float | None) -> float:
    """Variation of documents' sizes: as given, else the usual one for a given size, else as measured."""
    if arguments.questions_cv is not None:
        return float(arguments.questions_cv)
    return seen if questions is None else statistics.usual_cv(questions)


def _seen(experiment: Experiment, arguments: argparse.Namespace) -> Iterator[Spread]:
    """Variation of each metric of each run task; values of the command line override it."""
    for run_task, metrics in _wanted(experiment, arguments).items():
        if not experiment.scores_file(run_task).exists():
            continue
        for metric, (documents, values) in _scores(experiment, run_task, metrics).items():
            interval = statistics.mean_interval(values, documents)
            deviation = math.sqrt(sum((one - interval.estimate) ** 2 for one in values))
            deviation /= math.sqrt(max(1, len(values) - 1))
            icc = statistics.intraclass_correlation(values, documents) or 0.0
            sd = deviation if arguments.sd is None else arguments.sd
            if sd == 0 and arguments.sd is None:
                say(f"{run_task}: {metric} is the same for all samples, so its spread is unknown")
                continue
            sizes = list(Counter(documents).values())
            questions = arguments.questions_per_document
            yield Spread(
                run_task,
                metric,
                sd,
                min(1.0, max(0.0, icc)) if arguments.icc is None else arguments.icc,
                questions or fmean(sizes),
                _cv(arguments, pstdev(sizes) / fmean(sizes), questions),
                1.0 if set(values) <= {0, 1} else 0.0,
                len(sizes),
            )


def _wanted(experiment: Experiment, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Run task → metrics to use: those of answers, whose samples a comparison pairs."""
    there = {
        one.name: [metric.name for metric in one.metrics if not is_resource(metric)]
        for one in experiment.resolved.run_tasks
    }
    if not any(experiment.scores_file(name).exists() for name in there):
        raise no_scores(experiment)
    if arguments.run_task is not None:
        named = experiment.run_task(arguments.run_task).name
        there = {named: there[named]}
    if arguments.metrics:
        known = sorted({metric for metrics in there.values() for metric in metrics})
        for metric in arguments.metrics:
            if metric not in known:
                what = f"{experiment.id} has no metric '{metric}'"
                raise UserError(what, remedy=f"its metrics: {', '.join(known)}")
        there = {
            name: [one for one in metrics if one in arguments.metrics]
            for name, metrics in there.items()
        }
    return there


def _scores(
    experiment: Experiment, run_task: str, metrics: list[str]
) -> dict[str, tuple[list[str], list[float]]]:
    """Metric → documents and values of its scored samples."""
    table = rows_of(experiment.scores_file(run_task), ["document", *metrics])
    found = {}
    for metric in table.columns[1:]:
        scored = table.select("document", metric).drop_nulls()
        if scored.height > 1:
            found[metric] = (scored["document"].to_list(), scored[metric].to_list())
    return found


def _rows(one: Spread, arguments: argparse.Namespace, rho: float) -> Iterator[dict[str, Any]]:
    """Rows to print for a variation: one per effect, or one per number of documents."""
    shape = {
        "cluster_size": one.questions, "cluster_cv": one.cv, "icc": one.icc,
        "step": one.step, "alpha": ALPHA, "power": POWER,
    }  # fmt: skip
    common = {**asdict(one), "questions_per_document": one.questions, "questions_cv": one.cv}
    del common["questions"], common["cv"]
    documents = arguments.documents
    if documents is None and arguments.effect is None:
        documents = one.documents
        if documents is not None and documents < statistics.fewest_documents(ALPHA):
            say(
                f"{one.run_task}: {one.metric} has {documents} documents, too few to show any difference"
            )
            documents = None
    if documents is not None:
        samples = documents * one.questions
        effect = statistics.detectable(samples, one.sd, rho, **shape)
        yield {**common, "effect": effect, "samples": round(samples), "documents": documents}
        return
    for effect in EFFECTS if arguments.effect is None else (arguments.effect,):
        samples = statistics.samples_needed(effect, one.sd, rho, **shape)
        needed = math.ceil(samples / one.questions - 1e-9)
        yield {**common, "effect": abs(effect), "samples": samples, "documents": needed}


def _print(rows: list[dict[str, Any]], rho: float, assumed: Iterable[str], *, seen: bool) -> None:
    numbers = (
        "difference", "documents", "samples", "SD", "samples per document", "their CV", "ICC",
    )  # fmt: skip
    shown = table(*(("run task", "metric") if seen else ()), *numbers, right=numbers)
    for row in rows:
        shown.add_row(
            *((row["run_task"], row["metric"]) if seen else ()),
            f"{row['effect']:.3g}",
            f"{row['documents']:,}",
            f"{row['samples']:,}",
            f"{row['sd']:.3g}",
            f"{row['questions_per_document']:.3g}",
            f"{row['questions_cv']:.2g}",
            f"{row['icc']:.2g}",
        )
    out = console()
    out.print(shown)
    whence = "SD and ICC measured" if seen else "SD and ICC as given or by default"
    out.print(
        f"\ndifference: the smallest true difference of two runs over the same samples that a two-sided test "
        f"at {percent(ALPHA)} finds with {percent(POWER)} power; {whence}, "
        f"correlation of the two runs' scores {rho:g}",
        soft_wrap=True,
    )
    for line in assumed:
        out.print(f"assumed: {line}", soft_wrap=True)


def _assumed(arguments: argparse.Namespace) -> Iterator[str]:
    """Assumptions about documents with several questions that neither the user nor an experiment gave."""
    questions = arguments.questions_per_document or 1.0
    if questions <= 1:
        return
    if arguments.questions_cv is None:
        yield (
            f"documents have 1 to {2 * questions - 1:.3g} samples, each number equally often "
            "(--questions-cv 0: all documents have the same number)"
        )
    if arguments.icc is None and arguments.experiment is None:
        yield "differences within a document are uncorrelated (--icc 0.3: they are correlated)"
