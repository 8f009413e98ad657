"""Rows of the tables that show a comparison: the command line and reports print the same texts.

A row shows an entry of `compare --json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench import number_format as form
from hpcbench.comparison.pairing import pair_name

DETAILS = (".mean", ".p90", ".p99")
"""Figures of a latency that the short table leaves out."""


def metric_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """A metric: run task, metric, both values, difference, interval, p, won/lost/same, documents, verdict."""
    what = one["comparison"]
    p_value = what["p_value"] if what["p_adjusted"] is None else what["p_adjusted"]
    return (
        pair_name(one["baseline"], one["candidate"]),
        form.metric(one["metric"], one["unit"], higher_is_better=what["higher_is_better"]),
        form.value(what["baseline"]),
        form.value(what["candidate"]),
        form.difference(what["candidate"] - what["baseline"]),
        form.interval(what["interval"]["low"], what["interval"]["high"], sign=True),
        form.DASH if what["interval"]["low"] is None else form.p_value(p_value),
        f"{what['wins']}/{what['losses']}/{what['ties']}" if one["paired"] else form.DASH,
        form.count(what["clusters"]),
        what["verdict"],
    )


def metric_notes(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Notes that qualify a metric's row: the note's subject and its text."""
    what = one["comparison"]
    name = f"{one['candidate']}, {one['metric']}"
    if what["only_baseline"] or what["only_candidate"]:
        yield (
            name,
            f"left out {what['only_baseline']} samples that only the baseline has scored, and "
            f"{what['only_candidate']} that only the candidate has scored",
        )
    if one["if_worst"] not in (None, what["verdict"]):
        yield name, f"{one['if_worst']} if the samples left out counted as the worst"
    why = form.why_inconclusive(what, "the level for all rows together (Holm's correction)")
    if why and form.excludes_zero(what["interval"]):
        yield f"{name} is inconclusive", why
    if what["verdict"] == "inconclusive" and what["detectable"] is not None:
        yield (
            name,
            f"a true difference of {what['detectable']:.2g} would be found in 80 % of cases",
        )
    if one["documents_needed"] is not None:
        yield (
            name,
            f"if the candidate is as good, about {one['documents_needed']:,} documents would show "
            f"that it is not worse by more than {what['margin']:g}",
        )
    if one["holds_zero"]:
        yield (
            name,
            f"{what['verdict']} by its p-value; the interval, which allows for changes that no "
            "document here shows, contains 0",
        )


def refusal_text(one: Mapping[str, Any]) -> str:
    """Why something was not compared: `vqa: WHY (REMEDY)`."""
    return f"{pair_name(one['baseline'], one['candidate'])}: {one['why']} ({one['remedy']})"


def speed_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """A figure of speed or memory: run task, figure, both values, ratio, interval."""
    unit, number = ("GiB", form.gib) if one["unit"] == "bytes" else (one["unit"], form.figure)
    return (
        pair_name(one["baseline_task"], one["candidate_task"]),
        f"{one['label']}, {unit} {form.arrow(higher_is_better=one['higher_is_better'])}",
        number(one["baseline"]),
        number(one["candidate"]),
        form.value(one["ratio"]),
        form.interval(*(one["interval"] or (None, None))),
    )


def setting_text(value: Any) -> str:
    """A value of the configuration: text unchanged, else as JSON; a dash for none."""
    if value is None:
        return form.DASH
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
