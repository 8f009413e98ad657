"""Speed and memory of two runs side by side: ratios with their intervals, and whether they may be compared.

Times of two runs are comparable where machines and load were of one kind: GPUs, driver, CPU, requests in
flight or a second, samples. Where they are not, or nobody knows, the ratio stands there all the same, marked,
with the reason. What a plan changes on purpose (model, engine, options) is what is compared.

The interval of a ratio is made of the two runs' own intervals, which hold how times spread within a run. What
differs from one job to the next (another node, a warmer one, neighbours) is in none of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hpcbench import statistics
from hpcbench.comparison.pairing import pair_name
from hpcbench.comparison.results import SpeedRatio
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import at_once, performance_of

LATENCIES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E", "e2e_due_ms": "E2E from due"}
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
RATES = {"answers_per_s": "answers", "tokens_per_s": "tokens", "good_per_s": "good answers"}
MEMORY = {
    "gpu_peak": "GPU peak",
    "torch_allocated": "allocated by PyTorch",
    "kv_peak": "key-value cache used",
    "effective": "effective",
    "host_held_peak": "host, held",
}

LENGTH_TOLERANCE = 0.05
"""Share by which answers may differ in length before a note says so."""

_SOURCES = {"gpu_peak": "gpu_peak_source", "host_held_peak": "host_source"}
"""Figure of memory → where `performance.json` says how it was measured."""

_LOAD = {"concurrency": "at once", "rate": "a second", "arrival": "arrivals", "warm_up": "warm-up"}


@dataclass(frozen=True, slots=True)
class Speeds:
    """What is to be said of the speed of two runs."""

    figures: tuple[SpeedRatio, ...]
    """Figures that both have."""
    notes: tuple[str, ...]
    """What a reader has to know beside them, in words."""


def speed(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]],
    other_samples: frozenset[tuple[str, str]] = frozenset(),
) -> Speeds:
    """Figures of speed and memory that both have.

    Args:
        baseline: what is compared with.
        candidate: what is compared.
        pairs: run tasks of either that belong together.
        other_samples: those of them that have not asked the same samples.
    """
    tables = []
    for here in (baseline, candidate):
        try:
            tables.append(performance_of(here)["run_tasks"])
        except EnvironmentFault as fault:
            return Speeds((), (f"no speed is compared: {fault.message}",))
    figures: list[SpeedRatio] = []
    notes: dict[str, None] = {}
    for pair in pairs:
        one, other = (table.get(name) for table, name in zip(tables, pair, strict=True))
        if one is None or other is None:
            continue
        why = [*_other_machines(one, other), *_other_load(one, other)]
        if pair in other_samples:
            why.append("they asked other samples")
        figures += _latencies_and_rates(pair, one, other, [*why, *_client_bound(one, other)])
        figures += _memory(pair, one, other, why)
        name = pair_name(*pair)
        notes |= dict.fromkeys(f"{name}: {text}" for text in _notes(one, other))
    return Speeds(tuple(figures), tuple(notes))


def incomparable(
    one: Mapping[str, Any], other: Mapping[str, Any], memory: str | None = None
) -> list[str]:
    """Why figures of two run tasks of `performance.json` cannot be compared; empty: they can.

    Of samples it says nothing.

    Args:
        one: a run task's table.
        other: another one's.
        memory: a figure of memory, which is no matter of how busy the client was, but of how it was measured;
            None: figures of speed.
    """
    why = [*_other_machines(one, other), *_other_load(one, other)]
    if memory is None:
        return [*why, *_client_bound(one, other)]
    return [*why, *_measured_otherwise(one, other, memory)]


def ratio_interval(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float] | None:
    """Interval of other ÷ one, of two figures from independent runs, each with its own 95 % interval."""
    ends = [(figure.get("low"), figure.get("value"), figure.get("high")) for figure in (one, other)]
    widths = statistics.log_widths(ends[:1], ends[1:])
    if widths is None:
        return None
    below, above = widths
    ratio = math.log(other["value"] / one["value"])
    return math.exp(ratio - below), math.exp(ratio + above)


def _latencies_and_rates(
    pair: tuple[str, str], one: Mapping[str, Any], other: Mapping[str, Any], why: Sequence[str]
) -> Iterator[SpeedRatio]:
    under_rate = any((side.get("load") or {}).get("rate") is not None for side in (one, other))
    for key, label in LATENCIES.items():
        # At a given concurrency a request is due when there is room for it: both are then the same.
        if key == "e2e_due_ms" and not under_rate:
            continue
        for share in PERCENTILES:
            both = [((side.get(key) or {}).get(share) or {}) for side in (one, other)]
            yield from _figure(pair, "speed", f"{key}.{share}", f"{label} {share}", "ms", both, why)
    for key, label in RATES.items():
        both = [(side.get(key) or {}) for side in (one, other)]
        yield from _figure(pair, "speed", key, label, "1/s", both, why, higher=True)


def _memory(
    pair: tuple[str, str], one: Mapping[str, Any], other: Mapping[str, Any], why: Sequence[str]
) -> Iterator[SpeedRatio]:
    for key, label in MEMORY.items():
        unlike = _measured_otherwise(one, other, key)
        both = [{"value": (side.get("memory") or {}).get(key)} for side in (one, other)]
        yield from _figure(pair, "memory", f"memory.{key}", label, "bytes", both, [*why, *unlike])


def _figure(
    pair: tuple[str, str],
    kind: Literal["speed", "memory"],
    figure: str,
    label: str,
    unit: str,
    both: Sequence[Mapping[str, Any]],
    why: Sequence[str],
    *,
    higher: bool = False,
) -> Iterator[SpeedRatio]:
    """The figure, where both have it."""
    one, other = (side.get("value") for side in both)
    if one is None or other is None:
        return
    low, high = ratio_interval(both[0], both[1]) or (None, None)
    yield SpeedRatio(
        figure=figure,
        unit=unit,
        higher_is_better=higher,
        baseline=one,
        candidate=other,
        ratio=other / one if one else None,
        low=low,
        high=high,
        kind=kind,
        label=label,
        run_tasks=pair,
        why_not=tuple(why),
    )


def not_comparable(figures: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Why figures cannot be compared, a line for each reason, with the run tasks that it holds for.

    Args:
        figures: as `SpeedRatio.to_json` gives them.
    """
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for one in figures:
        name = pair_name(one["baseline_task"], one["candidate_task"])
        for reason in filter(None, one["why_not"].split("; ")):
            kinds, names = found.setdefault(reason, ({}, {}))
            kinds[one["kind"]] = names[name] = None
    for reason, (kinds, names) in found.items():
        yield f"{' and '.join(kinds)} of {', '.join(names)} cannot be compared: {reason}"


# --- whether they may be compared ----------------------------------------------------------------------


def _other_machines(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """What of the machines is not of one kind."""
    both = [side.get("hardware") for side in (one, other)]
    unknown = [
        name for name, kinds in zip(("baseline", "candidate"), both, strict=True) if not kinds
    ]
    if unknown:
        yield f"it is not known which GPUs the {' and the '.join(unknown)} ran on"
        return
    for part, label in (("gpus", "GPUs"), ("driver", "drivers"), ("cpu", "CPUs")):
        told = [sorted({_said(kind.get(part)) for kind in kinds or ()}) for kinds in both]
        if told[0] != told[1]:
            yield f"other {label}: {' and '.join(told[0])} → {' and '.join(told[1])}"
        elif len(told[0]) > 1:
            yield f"several kinds of {label} in either: {', '.join(told[0])}"


def _said(value: Any) -> str:
    """`2 × NVIDIA A100`, `none`."""
    if isinstance(value, list):
        counts = {name: value.count(name) for name in value}
        each = (f"{count} × {name}" if count > 1 else str(name) for name, count in counts.items())
        return " + ".join(each) or "none"
    return "none" if value is None else str(value)


def _other_load(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    loads = [side.get("load") or {} for side in (one, other)]
    for key, label in _LOAD.items():
        values = [at_once(load) if key == "concurrency" else load.get(key) for load in loads]
        if values[0] != values[1]:
            yield f"another load: {_said(values[0])} → {_said(values[1])} {label}"


def _measured_otherwise(
    one: Mapping[str, Any], other: Mapping[str, Any], memory: str
) -> Iterator[str]:
    """Whether a figure of memory is not of one source."""
    if source := _SOURCES.get(memory):
        told = [(side.get("memory") or {}).get(source) for side in (one, other)]
        if told[0] != told[1]:
            yield f"measured otherwise: {told[0]}, {told[1]}"


def _client_bound(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name, side in (("baseline", one), ("candidate", other)):
        if not side.get("valid", True):
            yield f"the {name}'s client was too slow for its times to be the engine's"


def _notes(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    nodes = [
        sorted({node for kind in side.get("hardware") or () for node in kind.get("nodes", ())})
        for side in (one, other)
    ]
    if nodes[0] and nodes[1] and nodes[0] != nodes[1]:
        yield f"other nodes: {_few(nodes[0])} → {_few(nodes[1])}"
    lengths = [_length(side) for side in (one, other)]
    if None not in lengths and lengths[0]:
        ratio = (lengths[1] or 0.0) / lengths[0]
        if abs(ratio - 1) > LENGTH_TOLERANCE:
            yield (
                f"the candidate's answers have {ratio:.2f} times the tokens: E2E and answers a second "
                "hold that, too"
            )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _length(side: Mapping[str, Any]) -> float | None:
    """Tokens of an answer, on average."""
    tokens, answered = side.get("completion_tokens"), side.get("answered")
    return tokens / answered if tokens is not None and answered else None
