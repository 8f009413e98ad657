"""Speed, memory, latency, and the use of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from hpcbench import number_format as form
from hpcbench.experiment.view.performance_json import Attainment, Performance, Speed
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
from hpcbench.reporting.printed_tables import (
    latency_rows,
    memory_rows,
    speed_rows,
)
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections.shared import MOST_PLOTS, performance_in, scores_in

MOST_WORKERS = 8
"""Most names of workers in one row."""


def _alone(performance: Performance) -> dict[str, Speed]:
    """Run tasks that are not points of a sweep, nor of agents: those are shown elsewhere."""
    return {
        name: table
        for name, table in performance.run_tasks.items()
        if table.load.sweep is None and table.trajectories is None
    }


def speed(tables: Tables) -> Section | None:
    performance = performance_in(tables)
    blocks: list[Block] = [
        Text(
            "Rates: of one engine, while the load was full; [ ]: 95 % interval; times: p50 / p95. TTFT: "
            "first chunk with text minus send. TPOT: from first chunk to last over the tokens after the "
            "first. E2E: last chunk with text minus the time at which the request was due. A dash: too few "
            "requests. Client-bound: the client was too slow, so the figures are not the engine's.",
            "note",
        )
    ]
    rows = [
        (
            row.run_task, row.load, row.answered, row.in_flight, row.answers, row.tokens, row.ttft,
            row.tpot, row.e2e,
        )
        for row in speed_rows(performance, _alone(performance))
    ]  # fmt: skip
    heads = (
        "run task", "load", "responded", "in flight", "answers/s", "tokens/s", "TTFT, ms", "TPOT, ms",
        "E2E, ms",
    )  # fmt: skip
    if tables["reused"]:
        note = _not_measured(tables["reused"], included=tables["reused_times"])
        blocks.append(Text(note, "note"))
    if rows:
        blocks.append(Table("Speed", heads, tuple(rows), 1, frozenset({1})))
    if len(machines := _machines(performance.run_tasks)) > 1:
        blocks.append(
            Text(
                "The run tasks ran on different machines: their speeds do not compare the models. "
                + "; ".join(f"{what}: {', '.join(names)}" for what, names in machines.items())
                + ".",
                "warn",
            )
        )
    parts = [
        part
        for part in (
            *_sweeps(performance, heads),
            _chosen(performance.run_tasks),
            _memory(performance.run_tasks),
            _tokens(performance.run_tasks),
            _limits(performance.run_tasks),
            _doubts(performance.run_tasks),
        )
        if part is not None
    ]
    tradeoffs = charts.tradeoffs(scores_in(tables), performance.run_tasks)
    blocks += [Plot(one) for one in islice(tradeoffs, MOST_PLOTS)]
    blocks += [Plot(one) for one in charts.tokens(performance.run_tasks)]
    if not rows and not parts:
        return None
    return Section("speed", "Speed and memory", tuple(blocks), tuple(parts))


def _not_measured(reused: Mapping[str, Mapping[str, int]], *, included: bool) -> str:
    """Which answers were not measured now, and where their times are."""
    experiments = sorted({name for counts in reused.values() for name in counts})
    counts_of = ", ".join(f"{name} {sum(counts.values()):,}" for name, counts in reused.items())
    if included:
        return f"The figures include times of earlier experiments ({', '.join(experiments)}): {counts_of}."
    return (
        "All figures were measured in this experiment. They leave out answers of earlier experiments: "
        f"{counts_of}. Their speed is in the reports of {', '.join(experiments)}."
    )


def _machines(speeds: Mapping[str, Speed]) -> dict[str, list[str]]:
    """Kinds of GPU → run tasks that were asked on them, where known."""
    found: dict[str, list[str]] = {}
    for name, table in speeds.items():
        if what := charts.machine(table):
            found.setdefault(what, []).append(name)
    return found


def _sweeps(performance: Performance, heads: Sequence[str]) -> Iterator[Part]:
    run_tasks = performance.run_tasks
    for name, sweep in performance.sweeps.items():
        goals = _goals(run_tasks[sweep.points[0]].attainment)
        rows = [
            (
                row.load, row.answered, row.in_flight,
                row.answers, row.tokens, row.ttft, row.tpot, row.e2e, *([row.good] if goals else []),
            )
            for row in speed_rows(performance, sweep.points)
        ]  # fmt: skip
        columns = (*heads[1:], *(["good answers/s, share"] if goals else []))
        note = "Knee: the load with the greatest throughput ÷ mean latency among loads of its kind."
        if goals:
            note += f" Good: {goals}; best: most good answers per second."
        blocks: list[Block] = [
            Table(f"Sweep {name}: its loads", columns, tuple(rows)),
            Text(note, "note"),
        ]
        plot = charts.sweep(name, sweep, run_tasks)
        if plot is not None:
            blocks.append(Plot(plot, with_table=False))
        yield Part(f"Sweep {name}", tuple(blocks))


def _chosen(speeds: Mapping[str, Speed]) -> Part | None:
    """The number that `concurrency: auto` chose for each worker; workers with the same number share a row."""
    rows: list[tuple[str, ...]] = []
    for name, table in speeds.items():
        workers: dict[int, list[str]] = {}
        for worker, count in (table.load.chosen or {}).items():
            workers.setdefault(count, []).append(worker)
        for count, own in sorted(workers.items()):
            rows.append((name, str(count), str(len(own)), form.few(own, MOST_WORKERS)))
    if not rows:
        return None
    note = (
        "Greedy answers can depend on how many requests an engine answers together. To compare another run "
        "with these, set the same number in its plan: `concurrency: N`."
    )
    heads = ("run task", "requests in flight", "workers", "names of workers")
    shown = Table(
        "Requests in flight that concurrency: auto chose", heads, tuple(rows), 1, frozenset({3})
    )
    return Part("Requests in flight", (shown, Text(note, "note")))


def _goals(attainment: Attainment | None) -> str:
    """`TTFT ≤ 500 ms, TPOT ≤ 50 ms`; empty without limits."""
    limits = attainment.slo if attainment is not None else {}
    return ", ".join(
        f"{name.upper()} ≤ {limits[f'{name}_ms']:g} ms"
        for name in ("ttft", "tpot", "e2e")
        if limits.get(f"{name}_ms") is not None
    )


def _memory(speeds: Mapping[str, Speed]) -> Part | None:
    rows = tuple(memory_rows(speeds))
    if not rows:
        return None
    heads = (
        "run task", "GPU, GiB", "PyTorch, GiB", "KV cache, GiB", "effective need, GiB", "host, GiB",
    )  # fmt: skip
    note = (
        "Peaks. GPU: memory of the engine's processes; an engine that reserves memory in advance sets this "
        "value itself. Effective need: weights, activations, graphs and the used part of the KV cache."
    )
    table = Table("Peak memory", heads, rows)
    figure = charts.memory(speeds)
    drawn = () if figure is None else (Plot(figure, with_table=False),)
    return Part("Memory", (table, Text(note, "note"), *drawn))


def _tokens(speeds: Mapping[str, Speed]) -> Part | None:
    """How workers got tokens of OAuth2."""
    rows = tuple(
        (
            name, _by_kind(one.granted), _by_kind(one.failed) or "0", f"{sum(one.seconds.values()):.1f}",
            f"{one.longest:.2f}", str(one.fallbacks), str(one.rejected), str(one.waits),
            f"{one.wait_seconds:.1f}", f"{one.oldest:,.0f}" if one.oldest else "–",
        )
        for name, table in speeds.items()
        if (one := table.tokens) is not None
    )  # fmt: skip
    if not rows:
        return None
    heads = (
        "run task", "tokens got", "failed requests", "for s", "longest, s", "fallbacks", "rejected",
        "requests that waited", "waited, s", "oldest, s",
    )  # fmt: skip
    note = (
        "Tokens got: by a full authentication, by a refresh token, and from the file of the user, for which "
        "another process had asked. Fallbacks: full authentications in place of a refresh token that no "
        "longer worked. Rejected: tokens that the endpoint answered with 401. Oldest: the greatest age of a "
        "token that a worker had."
    )
    table = Table("Tokens of the endpoints", heads, rows, texts=frozenset({1, 2}))
    return Part("Tokens", (table, Text(note, "note")))


def _by_kind(counts: Mapping[str, int]) -> str:
    """`3 full_auth, 12 cache`."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()) if count)


def _limits(speeds: Mapping[str, Speed]) -> Part | None:
    """Effects of the rate limits of gateways."""
    rows = tuple(
        (name, str(one.refused), str(one.waits), f"{one.wait_seconds:.0f}")
        for name, table in speeds.items()
        if (one := table.limits) is not None
    )
    if not rows:
        return None
    heads = ("run task", "requests refused (429)", "requests that waited", "waited, s")
    note = (
        "The gateway limited the rate. Rates of answers include these waits, latencies do not: they are the "
        "gateway's limits as much as the model's speed."
    )
    table = Table("Rate limits of gateways", heads, rows)
    return Part("Rate limits", (table, Text(note, "note")))


def _doubts(speeds: Mapping[str, Speed]) -> Part | None:
    items = tuple(
        Item(name, "; ".join(table.notes)) for name, table in speeds.items() if table.notes
    )
    return Part("Reasons to doubt the speed", (Items(items),)) if items else None


def latency(tables: Tables) -> Section | None:
    alone = _alone(performance_in(tables))
    rows = tuple(latency_rows(alone))
    if not rows:
        return None
    heads = ("run task", "latency, ms", "n", "mean", "p50", "p90", "p95", "p99", "maximum")
    table = Table(
        "Latencies in ms with intervals", heads, rows, 2, title="Latencies with intervals"
    )
    drawn = [Plot(one, with_table=False) for one in charts.latencies(alone)]
    return Section("latency", "Latency", (*drawn, table))


def resources(tables: Tables) -> Section | None:
    usage = Usage.model_validate(tables["usage"]) if tables["usage"] else None
    if usage is None:
        return None
    rows = tuple(usage_rows.usage_rows(usage))
    notes = usage_rows.usage_notes(usage, tables["per_document"], tables["currency"])
    legend = (
        "Used: the time with requests in flight whose answers count. The columns after the share: the time "
        "that was allocated and not used, by cause."
    )
    table = Table("GPU-hours and CPU-hours", usage_rows.HEADS, rows, texts=frozenset({1, 2}))
    return Section("resources", "Resources", (table, Text(" ".join([legend, *notes]), "note")))
