"""Rows that the report and the command line print: numbers are formatted here, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one run task."""

    run_task: str
    ml_task: str
    model: str
    dataset: str
    split: str | None
    metric: str
    value: float | None
    """None when no sample could be scored."""
    low: float | None
    """Lower end of the interval; None where undefined."""
    high: float | None
    """Upper end of the interval; None where undefined."""
    n: int
    """Samples scored."""
    clusters: int
    """Documents they belong to."""
    coverage: float
    """Samples with an answer ÷ samples asked."""
    higher_is_better: bool
    signature: str
    """Metric with all its options."""
    method: str
    """How the interval was found, or why there is none."""


@dataclass(frozen=True, slots=True)
class PerformanceRow:
    """Times and tokens of one run task; times in ms, already formatted."""

    run_task: str
    requests: int
    ttft: str
    tpot: str
    e2e: str
    prompt_tokens: str
    completion_tokens: str


def metric_rows(metrics: Mapping[str, Any]) -> Iterator[MetricRow]:
    """Rows of `metrics.json`, in the order it lists run tasks and metrics."""
    for run_task, table in metrics["run_tasks"].items():
        for name, entry in table["metrics"].items():
            entry = entry or {}
            yield MetricRow(
                run_task=run_task,
                ml_task=table["ml_task"],
                model=table["model"],
                dataset=table["dataset"],
                split=table["split"],
                metric=name,
                value=entry.get("value"),
                low=entry.get("low"),
                high=entry.get("high"),
                n=entry.get("n", 0),
                clusters=entry.get("clusters", 0),
                coverage=table["coverage"],
                higher_is_better=entry.get("higher_is_better", True),
                signature=entry.get("signature", ""),
                method=entry.get("method", "no sample was scored"),
            )


def performance_rows(performance: Mapping[str, Any]) -> Iterator[PerformanceRow]:
    """Rows of `performance.json`."""
    for run_task, table in performance["run_tasks"].items():
        yield PerformanceRow(
            run_task=run_task,
            requests=table["requests"],
            ttft=_quantiles(table["ttft_ms"]),
            tpot=_quantiles(table["tpot_ms"]),
            e2e=_quantiles(table["e2e_ms"]),
            prompt_tokens=_count(table["prompt_tokens"]),
            completion_tokens=_count(table["completion_tokens"]),
        )


def format_value(row: MetricRow) -> str:
    """`0.912`, or a dash when nothing was scored."""
    return "–" if row.value is None else f"{row.value:.3f}"


def format_interval(row: MetricRow) -> str:
    """`[0.874, 0.950]`, or a dash where it is undefined."""
    return "–" if row.low is None or row.high is None else f"[{row.low:.3f}, {row.high:.3f}]"


def _quantiles(values: Mapping[str, float] | None) -> str:
    return "–" if values is None else f"{values['p50']:.1f} / {values['p95']:.1f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", " ")
