"""Speed, memory, latency, and what it took of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.experiment.view.usage import Usage
from hpcbench.reporting import charts, usage_rows
from hpcbench.reporting.blocks import (
    Block,
    Item,
    Items,
    Part,
    Plot,
    Section,
    Table,
    Text,
)
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections.shared import MOST_PLOTS
from hpcbench.reporting.tables import (
    latency_rows,
    memory_rows,
    speed_rows,
)

MOST_WORKERS = 8
"""Names of workers in one row."""


def _alone(tables: Tables) -> list[str]:
    """Run tasks that are no points of a sweep, which stand together elsewhere."""
    found = tables["performance"]["run_tasks"]
    return [name for name, table in found.items() if table["load"]["sweep"] is None]


def speed(tables: Tables) -> Section | None:
    performance = tables["performance"]
    blocks: list[Block] = [
        Text(
            "Rates of one engine, in the time of full load; [ ]: 95 % interval; times: p50 / p95. TTFT: "
            "first chunk with text minus send. TPOT: from first chunk to last over the tokens after the "
            "first. E2E: last chunk with text minus when the request was due. A dash: too few requests to "
            "tell. Client-bound: the client was too slow, so the figures are not the engine's.",
            "note",
        )
    ]
    rows = [
        (
            row.run_task, row.load, row.answered, row.in_flight, row.answers, row.tokens, row.ttft,
            row.tpot, row.e2e,
        )
        for row in speed_rows(performance, _alone(tables))
    ]  # fmt: skip
    heads = (
        "run task", "load", "responded", "in flight", "answers/s", "tokens/s", "TTFT, ms", "TPOT, ms",
        "E2E, ms",
    )  # fmt: skip
    if rows:
        blocks.append(Table("Speed", heads, tuple(rows), 1, frozenset({1})))
    if len(machines := _machines(performance)) > 1:
        blocks.append(
            Text(
                "Not the same machine for all: speeds of different GPUs do not compare models. "
                + "; ".join(f"{what}: {', '.join(names)}" for what, names in machines.items())
                + ".",
                "warn",
            )
        )
    parts = [
        part
        for part in (
            *_sweeps(tables, heads),
            _chosen(performance),
            _memory(performance),
            _doubts(performance),
        )
        if part is not None
    ]
    tradeoffs = charts.tradeoffs(tables["metrics"], performance)
    blocks += [Plot(one) for one in islice(tradeoffs, MOST_PLOTS)]
    blocks += [Plot(one) for one in charts.tokens(performance)]
    if not rows and not parts:
        return None
    return Section("speed", "Speed and memory", tuple(blocks), tuple(parts))


def _machines(performance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Kinds of GPU → run tasks that were asked on them, of those that tell."""
    found: dict[str, list[str]] = {}
    for name, table in performance["run_tasks"].items():
        kinds = [", ".join(map(str, one.get("gpus") or ())) for one in table.get("hardware") or ()]
        what = " and ".join(dict.fromkeys(filter(None, kinds)))
        if what:
            found.setdefault(what, []).append(name)
    return found


def _sweeps(tables: Tables, heads: Sequence[str]) -> Iterator[Part]:
    performance = tables["performance"]
    run_tasks = performance["run_tasks"]
    for name, sweep in performance["sweeps"].items():
        goals = _goals(run_tasks[sweep["points"][0]]["attainment"])
        rows = [
            (
                row.load, row.answered, row.in_flight,
                row.answers, row.tokens, row.ttft, row.tpot, row.e2e, *([row.good] if goals else []),
            )
            for row in speed_rows(performance, sweep["points"])
        ]  # fmt: skip
        columns = (*heads[1:], *(["good/s, share"] if goals else []))
        note = "Knee: greatest throughput ÷ mean latency among loads of its kind."
        if goals:
            note += f" Good: {goals}; best: most good answers a second."
        blocks: list[Block] = [
            Table(f"Sweep {name}: its loads", columns, tuple(rows)),
            Text(note, "note"),
        ]
        plot = charts.sweep(name, sweep, run_tasks)
        if plot is not None:
            blocks.append(Plot(plot, with_table=False))
        yield Part(f"Sweep {name}", tuple(blocks))


def _chosen(performance: Mapping[str, Any]) -> Part | None:
    """What `concurrency: auto` came to, worker by worker; those of one number stand together."""
    rows: list[tuple[str, ...]] = []
    for name, table in performance["run_tasks"].items():
        workers: dict[int, list[str]] = {}
        for worker, count in (table["load"].get("chosen") or {}).items():
            workers.setdefault(count, []).append(worker)
        for count, own in sorted(workers.items()):
            more = f" and {len(own) - MOST_WORKERS} more" if len(own) > MOST_WORKERS else ""
            rows.append((name, str(count), str(len(own)), ", ".join(own[:MOST_WORKERS]) + more))
    if not rows:
        return None
    note = (
        "Greedy answers can depend on how many requests an engine answers together. The same number in "
        "another plan, `concurrency: N`, makes its runs comparable."
    )
    heads = ("run task", "at once", "workers", "which")
    table = Table("What concurrency: auto came to", heads, tuple(rows), 1, frozenset({3}))
    return Part("Requests at once", (table, Text(note, "note")))


def _goals(attainment: Mapping[str, Any] | None) -> str:
    """`TTFT ≤ 500 ms, TPOT ≤ 50 ms`; empty without limits."""
    limits = (attainment or {"slo": {}})["slo"]
    return ", ".join(
        f"{name.upper()} ≤ {limits[f'{name}_ms']:g} ms"
        for name in ("ttft", "tpot", "e2e")
        if limits.get(f"{name}_ms") is not None
    )


def _memory(performance: Mapping[str, Any]) -> Part | None:
    rows = tuple((row.run_task, *row.figures) for row in memory_rows(performance))
    if not rows:
        return None
    heads = (
        "run task", "GPU, GiB", "PyTorch, GiB", "KV cache, GiB", "effective need, GiB", "host, GiB",
    )  # fmt: skip
    note = (
        "Peaks. GPU: what the engine's processes held, which an engine that reserves in advance sets itself. "
        "Effective need: weights, activations, graphs and what of the KV cache was used."
    )
    table = Table("Peaks of memory", heads, rows)
    figure = charts.memory(performance)
    drawn = () if figure is None else (Plot(figure, with_table=False),)
    return Part("Memory", (table, Text(note, "note"), *drawn))


def _doubts(performance: Mapping[str, Any]) -> Part | None:
    items = tuple(
        Item(name, "; ".join(table["notes"]))
        for name, table in performance["run_tasks"].items()
        if table["notes"]
    )
    return Part("What casts doubt on the speed", (Items(items),)) if items else None


def latency(tables: Tables) -> Section | None:
    performance = tables["performance"]
    rows = tuple(
        (
            row.run_task, row.latency, form.count(row.n), row.mean, row.p50, row.p90, row.p95,
            row.p99, row.greatest,
        )
        for row in latency_rows(performance, _alone(tables))
    )  # fmt: skip
    if not rows:
        return None
    heads = ("run task", "latency, ms", "n", "mean", "p50", "p90", "p95", "p99", "greatest")
    table = Table(
        "Latencies in ms with intervals", heads, rows, 2, title="Latencies with intervals"
    )
    drawn = [Plot(one, with_table=False) for one in charts.latencies(performance, _alone(tables))]
    return Section("latency", "Latency", (*drawn, table))


def resources(tables: Tables) -> Section | None:
    usage = Usage.model_validate(tables["usage"]) if tables["usage"] else None
    if usage is None:
        return None
    rows = tuple(usage_rows.usage_rows(usage))
    notes = usage_rows.usage_notes(usage, tables["per_document"], tables["currency"])
    told = (
        "Used: with requests under way whose answers count; what follows is allocated and not used, by "
        "cause."
    )
    table = Table("GPU-hours and CPU-hours", usage_rows.HEADS, rows, texts=frozenset({1, 2}))
    return Section("resources", "What it took", (table, Text(" ".join([told, *notes]), "note")))
