"""The leading models, and whether their lead is more than chance: the report's first paragraph."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hpcbench import number_format as form
from hpcbench import statistics
from hpcbench.comparison.compare import compare
from hpcbench.errors import HpcbenchError, first_line
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.reporting.report_tables import GateVerdict, Leader, Rival
from hpcbench.schema.plan import ResolvedRunTask

MOST_RIVALS = 4
"""Most rivals that a leader is compared with, the best first."""

MOST_COMPARED = 200
"""Most comparisons of a report: each reads the scores of two run tasks."""

MOST_SHOWN = 8
"""Most values that the paragraph names for a model without rivals."""

FEW = 3
"""Up to so many datasets the paragraph names each leader; beyond, it counts, and a table has each."""


def leaders(
    experiment: Experiment, tables: Mapping[str, Scores], names: Sequence[str]
) -> list[Leader]:
    """The best of all run tasks with the same question, compared with the others sample by sample.

    The first of several repeats represents all: the best would be the luckiest. p-values are after Holm's
    correction over all comparisons of this call.

    Args:
        experiment: the experiment.
        tables: its run tasks' scores in `metrics.json`.
        names: run tasks to look at.
    """
    found: list[Leader] = []
    made: list[tuple[Rival, statistics.Comparison]] = []
    for metric, group in _questions(experiment, tables, names):
        entries = {name: tables[name].values[metric] for name in group}
        up = entries[group[0]].higher_is_better
        ranked = sorted(group, key=lambda name: entries[name].value, reverse=up)
        best, table, entry = ranked[0], tables[ranked[0]], entries[ranked[0]]
        rivals = [_rival(name, tables[name].model, entries[name].value) for name in ranked[1:]]
        for number, rival in enumerate(rivals):
            if number >= MOST_RIVALS or len(made) >= MOST_COMPARED:
                rival["why"] = "only the best are compared"
                continue
            compared = _compared(experiment, rival, best, metric)
            if compared is not None:
                made.append((rival, compared))
        found.append(
            {
                "ml_task": table.ml_task,
                "dataset": table.dataset,
                "split": table.split,
                "metric": metric,
                "higher_is_better": up,
                "run_task": best,
                "model": table.model,
                "value": entry.value,
                "low": entry.low,
                "high": entry.high,
                "coverage": table.coverage,
                "rivals": rivals,
            }
        )
    judged = statistics.with_holm([one for _, one in made])
    for (rival, _), comparison in zip(made, judged, strict=True):
        _judge(rival, comparison)
    return found


def _questions(
    experiment: Experiment, tables: Mapping[str, Scores], names: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Run tasks with the same question, with the first metric that they share."""
    resolved = {one.name: one for one in experiment.resolved.run_tasks}
    groups: dict[tuple[str, str, str | None], dict[str, str]] = {}
    for name in names:
        if resolved[name].task.judge is not None:
            continue  # its value is about another run task's answers
        table = tables[name]
        key = table.ml_task, table.dataset, table.split
        groups.setdefault(key, {}).setdefault(_variant(resolved[name]), name)
    for group in groups.values():
        found = list(group.values())
        for metric in tables[found[0]].metrics:
            scored = [name for name in found if metric in tables[name].values]
            entries = [tables[name].values[metric] for name in scored]
            made = {(one.signature, one.reading) for one in entries}
            if len(made) == 1:
                yield metric, scored
                break


def _variant(run_task: ResolvedRunTask) -> str:
    """A key that is equal for repeats of one run task, which differ only in name and seed."""
    task = run_task.task.model_dump(mode="json", exclude={"name", "description", "notes"})
    generation = task.get("generation")
    if isinstance(generation, dict):
        generation.pop("seed", None)
    return json.dumps([task, run_task.model.name, run_task.prompt.name], sort_keys=True)


def _rival(name: str, model: str, value: float) -> Rival:
    return {
        "run_task": name, "model": model, "value": value, "difference": None, "low": None,
        "high": None, "p": None, "p_method": "", "verdict": "not compared", "why": "",
    }  # fmt: skip


def _compared(
    experiment: Experiment, rival: Rival, leader: str, metric: str
) -> statistics.Comparison | None:
    try:
        (found,) = compare(experiment, experiment, [(rival["run_task"], leader)], [metric])
    except (HpcbenchError, OSError, ValueError) as error:
        rival["why"] = first_line(error)
        return None
    return dataclasses.replace(found.comparison, p_adjusted=None)


def _judge(rival: Rival, comparison: statistics.Comparison) -> None:
    rival["difference"] = comparison.candidate - comparison.baseline
    rival["low"], rival["high"] = comparison.interval.low, comparison.interval.high
    rival["p"], rival["p_method"] = comparison.p_adjusted, comparison.p_method
    words = {"better": "behind", "worse": "ahead"}
    verdict = words.get(comparison.verdict, "cannot be told apart")
    rival["verdict"] = cast("Any", verdict)


# --- in words -----------------------------------------------------------------------------------------


def sentences(found: Sequence[Leader], verdict: GateVerdict | None) -> list[str]:
    """The results, the verdict of a gate first."""
    texts = _of_gate(verdict) if verdict is not None else []
    contested = [one for one in found if one["rivals"]]
    alone: dict[str, list[Leader]] = {}
    for one in found:
        if not one["rivals"]:
            alone.setdefault(one["model"], []).append(one)
    if len(contested) > FEW:
        texts += _counted(contested)
    else:
        texts += [_of_leader(one, _where(one, found)) for one in contested]
    texts += [_of_one(model, some, found) for model, some in alone.items()]
    if not found:
        texts.append("No sample could be scored.")
    return texts


def _of_gate(verdict: GateVerdict) -> list[str]:
    words = {
        "GO": "every critical check passed",
        "NO-GO": "at least one critical check did not pass",
        "INCONCLUSIVE": "the checks do not decide",
    }
    failed = [one for one in verdict["checks"] if one["verdict"] != "pass"]
    counts = f"{form.many(len(verdict['checks']), 'check')}, {len(failed)} not passed"
    head = (
        f"{verdict['verdict']}: against the baseline {verdict['baseline']}, by the policy "
        f"{verdict['policy']}, {words.get(verdict['verdict'], 'see the checks')} ({counts})."
    )
    return [head, *(_sentence(reason) for reason in verdict["reasons"])]


def _where(one: Leader, found: Sequence[Leader]) -> str:
    """The dataset, with the ML task where the dataset alone is ambiguous."""
    name = f"{one['dataset']}, {one['split']}" if one["split"] else one["dataset"]
    same = [
        other
        for other in found
        if (other["dataset"], other["split"]) == (one["dataset"], one["split"])
    ]
    return name if len(same) == 1 else f"{name} ({one['ml_task']})"


def _counted(contested: Sequence[Leader]) -> Iterator[str]:
    """For many datasets: on how many each model leads, and on how many by more than chance."""
    best: dict[str, list[Leader]] = {}
    for one in contested:
        best.setdefault(one["model"], []).append(one)
    for model, some in sorted(best.items(), key=lambda item: -len(item[1])):
        ahead = sum(_ahead_of_all(one) for one in some)
        where = {0: "on none of them", len(some): "on all of them"}.get(
            ahead, f"on {ahead} of them"
        )
        yield (
            f"{model} has the best value on {len(some)} of {len(contested)} datasets; {where} it is ahead of "
            "every compared rival by more than chance."
        )


def _ahead_of_all(one: Leader) -> bool:
    verdicts = {rival["verdict"] for rival in one["rivals"]}
    return "behind" in verdicts and verdicts <= {"behind", "not compared"}


def _of_one(model: str, some: Sequence[Leader], found: Sequence[Leader]) -> str:
    """The values of a model without rivals."""
    values = [
        f"{one['metric']} {form.value_with_interval(one['value'], one['low'], one['high'])} on "
        f"{_where(one, found)}"
        for one in some[:MOST_SHOWN]
    ]
    more = (
        f"; the tables below show {len(some) - MOST_SHOWN} more" if len(some) > MOST_SHOWN else ""
    )
    doubts = "".join(dict.fromkeys(_doubt(one, _where(one, found)) for one in some))
    return f"{model} reaches {'; '.join(values)}{more}.{doubts}"


def _of_leader(one: Leader, where: str) -> str:
    value = form.value_with_interval(one["value"], one["low"], one["high"])
    head = f"On {where}, {named(one, one)} "
    behind = [rival for rival in one["rivals"] if rival["verdict"] == "behind"]
    ahead = [rival for rival in one["rivals"] if rival["verdict"] == "ahead"]
    tied = [rival for rival in one["rivals"] if rival["verdict"] == "cannot be told apart"]
    unknown = [rival for rival in one["rivals"] if rival["verdict"] == "not compared"]
    if not behind and not tied and not ahead:
        return (
            f"{head}has the best {one['metric']}, {value}; whether that is more than chance was not "
            f"tested.{_doubt(one)}"
        )
    if tied or ahead:
        text = f"{head}has the best {one['metric']}, {value}"
        if tied:
            text += f", but cannot be distinguished from {_listed(tied, one)}"
        if behind:
            text += (
                f"{';' if tied else ','} it is ahead of {_listed(behind, one)} by more than chance"
            )
        if ahead:
            text += f"; on the samples that both have scored, {_listed(ahead, one)} is better"
        return f"{text}.{_doubt(one)}"
    nearest = behind[0]
    ends = form.interval(nearest["low"], nearest["high"], sign=True)
    others = " and of all others" if len(behind) > 1 and not unknown else ""
    if len(behind) > 1 and unknown:
        others = f" and of {len(behind) - 1} others"
    return (
        f"{head}leads with {one['metric']} {value}, ahead of {named(nearest, one)}{others} by more than "
        f"chance: the difference to {named(nearest, one)} is "
        f"{form.difference(nearest['difference'])} {ends}.{_doubt(one)}"
    )


def named(one: Leader | Rival, leader: Leader) -> str:
    """The model; where it has several run tasks, also the run task."""
    models = [leader["model"], *(rival["model"] for rival in leader["rivals"])]
    model = one["model"]
    return model if models.count(model) == 1 else f"{model} ({one['run_task']})"


def _listed(rivals: Sequence[Rival], leader: Leader) -> str:
    names = [f"{named(one, leader)} ({form.value(one['value'])})" for one in rivals]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _doubt(one: Leader, where: str = "") -> str:
    """A remark about incomplete coverage."""
    if one["coverage"] >= 1:
        return ""
    of = f"samples on {where}" if where else "its samples"
    return f" Only {form.share(one['coverage'])} of {of} are ok."


def _sentence(text: str) -> str:
    whole = text.strip()
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
