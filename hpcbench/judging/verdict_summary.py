"""A judge's verdicts as a whole: votes joined, corrected by human labels, and the biases that show.

The naive value is the mean verdict. Beside it are, where labels allow it, the prediction-powered value and,
for verdicts of right or wrong, the value by sensitivity and specificity; see `statistics.judges`. Samples
without an answer to rate or without a readable verdict are in no value: they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcbench import number_format as form
from hpcbench import statistics
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import ScoresFiles, rows_of
from hpcbench.judging.labels import Label, Matched, matched, read_labels
from hpcbench.number_format import many
from hpcbench.parsers.reasoning import strip_reasoning
from hpcbench.schema.plan import ResolvedRunTask

if TYPE_CHECKING:
    from hpcbench.statistics import Interval

FEWEST_TO_SUSPECT = 20
"""Verdicts from which equal ones are a finding: fewer may be equal by chance."""

UNREADABLE = 0.1
"""Share of unreadable verdicts that is a finding."""

UNCALIBRATED = "uncalibrated"


@dataclass(frozen=True, slots=True)
class Vote:
    """One repeat of a judge, scored."""

    run_task: ResolvedRunTask
    place: ScoresFiles
    """Files with its scores."""
    metric: str
    """Name of its metric of verdicts."""
    kind: Any
    """That metric."""


@dataclass(frozen=True)
class _Table:
    """Samples with a verdict, one row each; arrays of one length."""

    samples: list[str]
    documents: Any
    verdicts: Any
    """Mean over the readable votes."""
    labels: Any
    """NaN: the sample has none."""
    lengths: list[tuple[int, ...]]
    """Characters of each judged answer."""

    @property
    def labelled(self) -> Any:
        """Whether each sample has a label."""
        return self.labels == self.labels


def summarise(
    experiment: Experiment,
    judges: Mapping[str, Sequence[Vote]],
    labels: Mapping[str, Sequence[Label]] | None = None,
) -> dict[str, dict[str, Any]]:
    """`judges` of `metrics.json`: judge without the mark of its repeats → its verdicts joined.

    Args:
        experiment: the experiment; it has the scores of the run tasks that are rated.
        judges: judge → its repeats.
        labels: judge → labels to use. None: those that the experiment keeps.

    Raises:
        UserError: labels that the experiment keeps are damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    errors: dict[tuple[str, str], list[tuple[bool, _Table]]] = {}
    for base, votes in judges.items():
        if not all(vote.place.scores.exists() for vote in votes):
            continue
        own = labels.get(base) if labels is not None else kept_labels(experiment, base, votes[0])
        entry, table = _one(experiment, votes, own)
        found[base] = entry
        if table is not None and table.labelled.any():
            judge = votes[0].run_task
            key = judge.model.name, judge.prompt.name
            errors.setdefault(key, []).append((bool(entry["own_family"]), table))
    for (model, rubric), tables in errors.items():
        difference = _family(tables)
        if difference is None:
            continue
        for base, votes in judges.items():
            judge = votes[0].run_task
            if base in found and (judge.model.name, judge.prompt.name) == (model, rubric):
                found[base]["family"] = _written(difference)
                if _excludes(difference, 0.0):
                    found[base]["findings"].append(
                        "the judge rates answers of its own family "
                        f"{_more(difference.estimate)} than people do, beside its rating of others"
                    )
    return found


def kept_labels(experiment: Experiment, base: str, vote: Vote) -> list[Label] | None:
    """The labels that an experiment keeps for a judge; None: it has none.

    Raises:
        UserError: the file is damaged.
    """
    file = experiment.labels_file(base)
    if not file.exists():
        return None
    judge = vote.run_task.task.judge
    assert judge is not None
    return read_labels(file, as_labels(vote.kind), pairs=judge.against is not None)


def as_labels(metric: Any) -> Any:
    """The metric that gives labels their values: `first` of a label is always the answer of `judge.of`."""
    from dataclasses import replace

    return replace(metric, swapped=False) if metric.swapped else metric


def answers_of(
    experiment: Experiment, run_task: ResolvedRunTask
) -> dict[str, tuple[str | None, ...]]:
    """Every sample of the run tasks that a judge rates → their answers as the judge sees them."""
    judge = run_task.task.judge
    assert judge is not None
    each: list[dict[str, str | None]] = []
    for name in judge.judged:
        keeps = experiment.resolved.run_task(name).ml_task.reasoning == "keep"
        place = ScoresFiles(experiment.scores_dir, name)
        if not place.scores.exists():
            return {}
        rows = rows_of(place.scores, ["sample", "answer"]).iter_rows()
        each.append(
            {
                sample: text if text is None or keeps else strip_reasoning(text)
                for sample, text in rows
            }
        )
    return {sample: tuple(one.get(sample) for one in each) for sample in each[0]}


def _one(
    experiment: Experiment, votes: Sequence[Vote], labels: Sequence[Label] | None
) -> tuple[dict[str, Any], _Table | None]:
    first = votes[0].run_task
    judge = first.task.judge
    assert judge is not None
    answers = answers_of(experiment, first)
    match = None if labels is None else matched(labels, answers)
    table, counts, orders = _joined(votes, answers, match)
    rated = experiment.resolved.run_task(judge.of)
    families = {experiment.resolved.run_task(name).model.family for name in judge.judged}
    entry: dict[str, Any] = {
        "of": judge.of,
        "against": judge.against,
        "run_tasks": [vote.run_task.name for vote in votes],
        "model": first.model.name,
        "rated_model": rated.model.name,
        "rubric": first.prompt.name,
        "rubric_version": first.prompt.version,
        "metric": votes[0].metric,
        "kind": votes[0].kind.kind,
        "pages": judge.pages,
        **counts,
        "own_family": bool(first.model.family) and first.model.family in families,
        "state": UNCALIBRATED,
        "why": "there are no human labels" if labels is None else "",
        "findings": [],
    }
    if match is not None:
        entry["labels"] = {
            "given": match.given,
            "used": 0,
            "other_answers": match.other_answers,
            "unknown": match.unknown,
        }
    if table is None:
        entry["why"] = "the judge gave no readable verdict"
        return entry, None
    naive = statistics.mean_interval(table.verdicts, table.documents, bounds=(0.0, 1.0))
    entry["naive"] = _written(naive)
    if match is not None:
        entry |= _calibrated(entry, votes[0].kind.kind, table, match)
    entry |= _biases(table, orders, pairs=judge.against is not None)
    entry["findings"] += _findings(entry, table)
    return entry, table


def _joined(
    votes: Sequence[Vote], answers: Mapping[str, tuple[str | None, ...]], match: Matched | None
) -> tuple[_Table | None, dict[str, Any], dict[bool, dict[str, float]]]:
    """The joined votes; counts; and, by whether the order was swapped, sample → mean vote."""
    import numpy

    said: dict[str, list[float]] = {}
    by_order: dict[bool, dict[str, list[float]]] = {False: {}, True: {}}
    document: dict[str, str] = {}
    unreadable, asked = 0, 0
    for vote in votes:
        columns = ["sample", "document", "invalid", "outcome", vote.metric]
        frame = rows_of(vote.place.scores, columns)
        for sample, its_document, invalid, _, value in frame.select(columns).iter_rows():
            document[sample] = its_document
            asked += 1
            unreadable += bool(invalid)
            if value is not None and not invalid:
                said.setdefault(sample, []).append(value)
                by_order[vote.run_task.swapped].setdefault(sample, []).append(value)
    samples = [sample for sample in document if sample in said]
    without = sum(any(text is None for text in texts) for texts in answers.values())
    several = [values for values in said.values() if len(values) > 1]
    counts: dict[str, Any] = {
        "samples": len(document),
        "judged": len(samples),
        "without_answer": without,
        "votes": len(votes),
        "verdicts": sum(map(len, said.values())),
        "unreadable": unreadable,
        "unanimous": _rounded(
            sum(len({*values}) == 1 for values in several) / len(several) if several else None
        ),
    }
    means = {
        order: {sample: sum(values) / len(values) for sample, values in own.items()}
        for order, own in by_order.items()
    }
    if not samples:
        return None, counts, means
    human = match.values if match is not None else {}
    table = _Table(
        samples,
        numpy.unique([document[sample] for sample in samples], return_inverse=True)[1],
        numpy.array([sum(said[sample]) / len(said[sample]) for sample in samples]),
        numpy.array([human.get(sample, numpy.nan) for sample in samples]),
        [tuple(len(text or "") for text in answers.get(sample, ())) for sample in samples],
    )
    return table, counts, means


def _calibrated(
    entry: Mapping[str, Any], kind: str, table: _Table, match: Matched
) -> dict[str, Any]:
    """The corrected values, or why there are none."""
    used = int(table.labelled.sum())
    found: dict[str, Any] = {"labels": {**entry["labels"], "used": used}}
    if not used:
        reason = f"none of {many(match.given, 'label')} is about an answer that was judged here"
        if match.other_answers:
            reason += (
                f": {match.other_answers} quote other answers, as labels of another experiment do"
            )
        elif match.unknown:
            reason += f": {match.unknown} name samples that are not here"
        return {**found, "why": reason}
    powered = statistics.prediction_powered(table.verdicts, table.labels, table.documents)
    found["powered"] = _written(powered)
    if kind == "binary":
        import numpy

        sure = table.verdicts != 0.5  # without a majority there is no verdict
        votes = (table.verdicts[sure] > 0.5).astype(float)
        own = votes, table.labels[sure], table.documents[sure]
        if len(votes) and not numpy.isnan(table.labels[sure]).all():
            agreed = statistics.agreement(*own)
            found["sensitivity"] = agreed.sensitivity and _written(agreed.sensitivity)
            found["specificity"] = agreed.specificity and _written(agreed.specificity)
            found["corrected"] = _written(statistics.corrected_share(*own))
    if powered.low is None:
        return {**found, "why": powered.method}
    error = table.verdicts[table.labelled] - table.labels[table.labelled]
    bias = statistics.mean_interval(error, table.documents[table.labelled])
    return {**found, "state": "calibrated", "why": "", "bias": _written(bias)}


def _biases(
    table: _Table, orders: Mapping[bool, Mapping[str, float]], *, pairs: bool
) -> dict[str, Any]:
    """Preference for the first of a pair, and for long answers."""
    import numpy

    found: dict[str, Any] = {}
    document = dict(zip(table.samples, table.documents.tolist(), strict=True))
    if pairs:
        both = [
            sample for sample in table.samples if sample in orders[False] and sample in orders[True]
        ]
        if both:
            # A vote for the first answer shown: of a swapped request, a vote against the answer of `of`.
            first = [(orders[False][one] + 1 - orders[True][one]) / 2 for one in both]
            same = sum(_side(orders[False][one]) == _side(orders[True][one]) for one in both)
            interval = statistics.mean_interval(
                first, [document[one] for one in both], bounds=(0.0, 1.0)
            )
            found["order"] = {**_written(interval), "consistent": _rounded(same / len(both))}
        longer = [len(one) == 2 and one[0] != one[1] for one in table.lengths]
        if any(longer):
            at = numpy.array(longer)
            up = numpy.array(
                [one[0] > one[1] for one in table.lengths if len(one) == 2 and one[0] != one[1]]
            )
            liked = numpy.where(up, table.verdicts[at], 1 - table.verdicts[at])
            found["longer"] = _written(
                statistics.mean_interval(liked, table.documents[at], bounds=(0.0, 1.0))
            )
            known = table.labelled[at]
            if known.any():
                human = numpy.where(up, table.labels[at], 1 - table.labels[at])
                more = statistics.mean_interval((liked - human)[known], table.documents[at][known])
                found["length"] = _written(more)
        return found
    known = table.labelled
    sizes = numpy.array([one[0] if one else 0 for one in table.lengths])[known]
    if len(sizes) and len({*sizes.tolist()}) > 1:
        long = sizes > numpy.median(sizes)
        if long.any() and not long.all():
            error = (table.verdicts - table.labels)[known]
            found["length"] = _written(
                statistics.difference_of_means(error, long, table.documents[known])
            )
    return found


def _findings(entry: Mapping[str, Any], table: _Table) -> Iterator[str]:
    """Sentences that a reader must know before using the value."""
    if len(table.verdicts) >= FEWEST_TO_SUSPECT and len({*table.verdicts.tolist()}) == 1:
        yield (
            f"the judge gave the same verdict to all {len(table.verdicts)} answers: it may not tell "
            "good from bad"
        )
    corrected = entry.get("corrected")
    if corrected is not None and corrected["method"].startswith("undefined: the judge"):
        yield "by the labels, the judge does not tell right from wrong"
    share = entry["unreadable"] / max(1, entry["unreadable"] + entry["verdicts"])
    if share > UNREADABLE:
        yield f"{form.share(share)} of the verdicts are unreadable: they are in no value"
    match = entry.get("labels")
    if match is not None and not match["used"]:
        yield f"{entry['why']}: check which experiment the labels are for"
    elif match is not None and match["other_answers"] + match["unknown"]:
        left = match["other_answers"] + match["unknown"]
        yield f"{left} of {many(match['given'], 'label')} are not about answers of this experiment"
    known = table.labelled
    if known.any() and not known.all():
        apart = statistics.difference_of_means(table.verdicts, known, table.documents)
        if _excludes(apart, 0.0):
            yield (
                f"the judge rates the labelled answers {_more(apart.estimate)} than the others: they may "
                "not be a random choice, which the prediction-powered value needs"
            )
    if (order := entry.get("order")) is not None and _apart(order, 0.5):
        which = "first" if order["value"] > 0.5 else "second"
        share = f"{order['value']:.2f} for the first"
        yield f"the judge prefers the {which} answer of a pair, whichever it is ({share})"
    if (length := entry.get("length")) is not None and _apart(length, 0.0):
        yield f"the judge rates long answers {_more(length['value'])} than people do"
    if entry["own_family"] and entry["state"] == UNCALIBRATED:
        yield "judge and rated model are of one family, and there are no labels to see whether that matters"


def _family(tables: Sequence[tuple[bool, _Table]]) -> Interval | None:
    """Mean error on answers of the judge's own family minus that on others; None: one kind is missing."""
    import numpy

    if len({own for own, _ in tables}) < 2:
        return None
    error = numpy.concatenate([(one.verdicts - one.labels)[one.labelled] for _, one in tables])
    kinds = numpy.concatenate(
        [numpy.full(int(one.labelled.sum()), float(own)) for own, one in tables]
    )
    names = [
        sample
        for _, one in tables
        for sample, known in zip(one.samples, one.labelled.tolist(), strict=True)
        if known
    ]
    return statistics.difference_of_means(error, kinds, names)


def _side(vote: float) -> int:
    return (vote > 0.5) - (vote < 0.5)


def _more(difference: float) -> str:
    return f"{abs(difference):.2f} {'higher' if difference > 0 else 'lower'}"


def _excludes(interval: Interval, value: float) -> bool:
    return (
        interval.low is not None
        and interval.high is not None
        and not (interval.low <= value <= interval.high)
    )


def _apart(entry: Mapping[str, Any], value: float) -> bool:
    return entry["low"] is not None and not entry["low"] <= value <= entry["high"]


def _written(interval: Interval) -> dict[str, Any]:
    return {
        "value": _rounded(interval.estimate),
        "low": _rounded(interval.low),
        "high": _rounded(interval.high),
        "n": interval.n,
        "clusters": interval.clusters,
        "method": interval.method,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 10)
