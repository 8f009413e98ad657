"""Repeats of a run task joined: pass@k and pass^k of metrics that say right or wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hpcbench import statistics
from hpcbench.evaluation.score_tables import Scored
from hpcbench.experiment.view.scores import rows_of

_REPEAT = re.compile(r"-r[0-9]+(?=$|-c[0-9]+$|-r[0-9.]+$)")
"""The mark of a repeat in a run task's name; the mark of a sweep's point follows it."""

KS = (1, 2, 3, 4, 5, 8, 10, 16, 25, 32, 50, 64, 100)
"""Numbers of attempts that are shown, as far as there are so many repeats."""


def base_of(run_task: str) -> str:
    """A run task's name without the mark of its repeat: `vqa-r2` is a run of `vqa`, `vqa-r2-c8` of
    `vqa-c8`."""
    return _REPEAT.sub("", run_task)


def joined(scored: Sequence[Scored]) -> dict[str, dict[str, Any]]:
    """`repeats` of `metrics.json`: run task without the mark of its repeats → its repeats joined.

    A sample counts for k where at least k repeats have a value of it; values that the policy leaves out are
    none. Intervals are by document: repeats of a sample stay together in one estimate.
    """
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        groups.setdefault(base_of(one.run_task.name), []).append(one)
    found = {}
    for base, runs in groups.items():
        first = runs[0].run_task
        alike = all(
            (one.run_task.dataset, one.run_task.model) == (first.dataset, first.model)
            for one in runs
        )
        metrics = {
            name: entries
            for name in runs[0].metrics
            if len(runs) > 1 and alike and (entries := list(_passes(runs, name)))
        }
        if metrics:
            found[base] = {"run_tasks": [one.run_task.name for one in runs], "metrics": metrics}
    return found


def _passes(runs: Sequence[Scored], metric: str) -> Iterator[dict[str, Any]]:
    """Both figures for each k; nothing where a value is neither 0 nor 1, or 1 is not the best."""
    import polars

    kind = runs[0].metrics[metric]
    right_or_wrong = kind.aggregation == "mean" and kind.higher_is_better
    if not right_or_wrong or not all(one.place.scores.exists() for one in runs):
        return
    columns = ["sample", "document", metric]
    frames = [rows_of(one.place.scores, columns) for one in runs]
    values = polars.concat([frame for frame in frames if frame.width == len(columns)])
    known = values.filter(polars.col(metric).is_not_null())
    if not known.height or not known[metric].is_in([0.0, 1.0]).all():
        return
    counted = known.group_by("sample", "document").agg(
        polars.len().alias("n"), polars.col(metric).sum().cast(polars.Int64).alias("c")
    )
    rows = counted.sort("document", "sample").select("document", "n", "c").rows()
    most = max(n for _, n, _ in rows)
    for k in sorted({*(k for k in KS if k < most), most}):
        some = [(document, n, c) for document, n, c in rows if n >= k]
        documents = [document for document, _, _ in some]
        entry: dict[str, Any] = {"k": k, "n": len(some), "clusters": len({*documents})}
        for name, estimate in (("pass_at", statistics.pass_at), ("pass_all", statistics.pass_all)):
            each = [estimate(n, c, k) for _, n, c in some]
            interval = statistics.mean_interval(each, documents, bounds=(0.0, 1.0))
            entry[name] = {
                "value": _rounded(interval.estimate),
                "low": _rounded(interval.low),
                "high": _rounded(interval.high),
                "method": interval.method,
            }
        yield entry


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 10)
