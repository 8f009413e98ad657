"""The arms of an experiment of `hpcbench ab`, from the last look at each run task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench import number_format as form
from hpcbench.experiment.interim import looks_at
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.report_tables import Arms, ArmsRow, TwoArms


def arms_of(experiment: Experiment) -> Arms | None:
    """The findings of the last looks; None where the experiment has no arms."""
    resolved = experiment.resolved
    if resolved.arms is None:
        return None
    looks = {pair: looks_at(experiment, pair) for pair in resolved.pairs}
    return {
        "a": list(resolved.arms.texts("a")),
        "b": list(resolved.arms.texts("b")),
        "run_tasks": [_last(pair, known[-1]) for pair, known in looks.items() if known],
    }


def _last(pair: str, look: Mapping[str, Any]) -> TwoArms:
    quality, answers, speed = rows_of(look)
    return {
        "run_task": pair,
        "done": look["done"],
        "of": look["of"],
        "samples": look["samples"],
        "stopped": look["why"] if look["stop"] else None,
        "level": 1 - look["alpha"],
        "quality": quality,
        "answers": answers,
        "speed": speed,
        "same_nodes": look["same_nodes"],
    }


def rows_of(
    look: Mapping[str, Any],
) -> tuple[list[ArmsRow], list[ArmsRow], list[ArmsRow]]:
    """Findings of a look: a row for each metric, for each count of the answers, for each figure of speed."""
    deciding = look["deciding"]
    return (
        [_quality(one, one["metric"] in deciding) for one in look["quality"]],
        [*_answers(look.get("answers"))],  # looks of earlier versions have none
        [_speed(one, one["figure"] in deciding) for one in look["speed"]],
    )


def _quality(one: Mapping[str, Any], decides: bool) -> ArmsRow:
    return {
        "what": one["metric"],
        "unit": "",
        "higher_is_better": one["higher_is_better"],
        "decides": decides,
        "a": one["baseline"],
        "b": one["candidate"],
        "change": one["candidate"] - one["baseline"],
        "low": one["interval"]["low"],
        "high": one["interval"]["high"],
        "verdict": one["verdict"],
    }


def _answers(arms: Mapping[str, Mapping[str, float | None]] | None) -> Iterator[ArmsRow]:
    """Rows without a verdict: the coverage, and the mean number of tokens of an answer."""
    for name, unit in (
        ("coverage", ""),
        ("prompt_tokens", "tokens"),
        ("completion_tokens", "tokens"),
    ):
        a, b = (arms[letter][name] if arms is not None else None for letter in "ab")
        if a is None or b is None:
            continue
        change = b - a if not unit else b / a if a else None
        yield {
            "what": name, "unit": unit, "higher_is_better": not unit, "decides": False, "a": a, "b": b,
            "change": change, "low": None, "high": None, "verdict": "",
        }  # fmt: skip


def _speed(one: Mapping[str, Any], decides: bool) -> ArmsRow:
    return {
        "what": one["figure"],
        "unit": one["unit"],
        "higher_is_better": one["higher_is_better"],
        "decides": decides,
        "a": one["a"],
        "b": one["b"],
        "change": one["ratio"],
        "low": one["low"],
        "high": one["high"],
        "verdict": one["verdict"],
    }


def cells(row: ArmsRow) -> tuple[str, ...]:
    """A row for people, on a page or on the command line: subject, both arms, change and interval."""
    what = f"{row['what']} {form.arrow(higher_is_better=row['higher_is_better'])}"
    if not row["unit"]:
        ends = form.interval(row["low"], row["high"], sign=True)
        both = (form.value(row["a"]), form.value(row["b"]))
        return what, *both, form.difference(row["change"]), ends
    both = (f"{form.figure(row['a'])} {row['unit']}", f"{form.figure(row['b'])} {row['unit']}")
    change = "–" if row["change"] is None else f"× {form.value(row['change'])}"
    return what, *both, change, form.interval(row["low"], row["high"])
