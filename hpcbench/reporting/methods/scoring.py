"""Metrics and statistics of a methods section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hpcbench
from hpcbench import number_format as form
from hpcbench import plugins
from hpcbench.errors import HpcbenchError
from hpcbench.evaluation.resources import ONE_VALUE, SLICES, TOO_SHORT
from hpcbench.experiment.interim import looks_at
from hpcbench.experiment.view.metrics_json import MetricValue
from hpcbench.metrics.citations import CITATIONS
from hpcbench.reporting.blocks import Item, Items, Text
from hpcbench.reporting.gather import shown, verdict_of
from hpcbench.reporting.leaderboard import leaders
from hpcbench.reporting.methods.facts import Cited, Facts, MethodsLine, Missing, joined
from hpcbench.reporting.report_tables import Leader
from hpcbench.schema.metric import Metric
from hpcbench.scorer.one import takes_measurement
from hpcbench.statistics import NO_SPREAD, ONE_CLUSTER
from hpcbench.statistics.limits import BAYESIAN, CR1, EXACT
from hpcbench.statistics.paired import NOTHING_DIFFERS
from hpcbench.statistics.quantiles import BY_CLUSTERS, ORDER_STATISTICS

_INTERVALS = {
    BAYESIAN: (
        "is the Bayesian bootstrap of documents with a pseudo-document for values that the sample does not "
        "show. Its limits come from a saddlepoint formula, so there are no random resamples",
        (
            "Rubin 1981, Annals of Statistics 9:130 (Bayesian bootstrap)",
            "Lugannani and Rice 1980, Adv. Appl. Prob. 12:475 (saddlepoint formula)",
        ),
    ),
    EXACT: (
        "is the exact interval of Clopper and Pearson, with documents as observations",
        ("Clopper and Pearson 1934, Biometrika 26:404",),
    ),
    CR1: ("is Student's t with the standard error CR1, clustered by document", ()),
    ONE_CLUSTER: ("stands for no interval: all samples belong to one document", ()),
    NO_SPREAD: ("stands for no interval: documents do not differ", ()),
    ORDER_STATISTICS: (
        "is two order statistics whose ranks come from the binomial distribution",
        ("David and Nagaraja 2003, Order Statistics, section 7.1",),
    ),
    BY_CLUSTERS: (
        "is the values at the ends of the interval of the share of values up to the percentile, clustered by "
        "document",
        ("Woodruff 1952, J. Am. Stat. Assoc. 47:635",),
    ),
    SLICES: ("is Student's t over 20 equal slices of the steady window", ()),
    TOO_SHORT: ("stands for no interval: the steady window has too few slices", ()),
    ONE_VALUE: ("stands for no interval: a run has one such value", ()),
}
"""Method of an interval as `metrics.json` names it → what it is, and its publications."""

_HOLM = "Holm 1979, Scand. J. Statist. 6:65"
_SWAPS = "Phipson and Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9:39 (random swaps)"
_TESTS = {
    "McNemar, exact": ("McNemar's exact test", "McNemar 1947, Psychometrika 12:153"),
    NOTHING_DIFFERS: ("no test, because no sample differs", ""),
}
"""Method of a p-value → its name, and its publication."""


# --- metrics -------------------------------------------------------------------------------------------


def metrics(facts: Facts) -> Iterator[MethodsLine]:
    """Definition, source and signature of each metric."""
    found: dict[tuple[str, str], list[str]] = {}
    definitions: dict[tuple[str, str], tuple[Metric, MetricValue]] = {}
    for one in facts.run_tasks:
        for metric in one.metrics:
            entry = facts.scores[one.name].values.get(metric.name)
            if entry is None:
                measured = facts.scores[one.name].measured.get(metric.name)
                why = f"it has no value: {measured.why}" if measured else "it scored no sample"
                yield Missing(f"Metric {metric.name} of run task {one.name}: {why}.")
                continue
            key = metric.model_dump_json(), entry.signature
            found.setdefault(key, []).append(one.name)
            definitions[key] = metric, entry
    items = []
    for key, names in found.items():
        metric, entry = definitions[key]
        source, cited = _source(metric, entry)
        if cited:
            yield Cited(cited)
        texts = (
            f"{'higher' if entry.higher_is_better else 'lower'} is better",
            f'its definition says "{metric.description}"' if metric.description else "",
            f"signature `{entry.signature}`",
            source,
        )
        items.append(Item(f"{metric.name} ({facts.named(names)})", joined(texts)))
    if items:
        yield Text(
            "A signature names the metric, all its options in effect and the version of its code; only "
            "values with equal signatures are comparable."
        )
        yield Items(tuple(items))


def _source(metric: Metric, entry: MetricValue) -> tuple[str, str]:
    """The source of a metric's definition, and its citation, as far as the installed metric shows them."""
    try:
        kind = plugins.load("metrics", metric.plugin)
        installed: Any = plugins.with_options(kind, metric.options)
    except (HpcbenchError, TypeError, ValueError):
        return f"the metric's plugin {metric.plugin} is not installed here", ""
    if takes_measurement(installed):
        unit = installed.unit.format(currency="the site's currency")
        return f"measured in {unit}, not scored", ""
    if installed.signature != entry.signature:
        return "the installed version of the metric has another signature", ""
    kind = type(installed)
    dialect = getattr(kind, "dialects", {}).get(getattr(installed, "compat", ""))
    origin: dict[str, Any] = getattr(dialect, "provenance", dict)()
    kit = (
        f"computed as {origin['kit']} does, {origin['release']} ({origin['place']})"
        if origin
        else ""
    )
    cited = CITATIONS.get(kind.name, "") if kind.__module__.startswith("hpcbench.metrics.") else ""
    source = f"published as {cited.partition(', ')[0]}" if cited else ""
    return "; ".join(filter(None, (source, kit))), cited


# --- statistics ----------------------------------------------------------------------------------------


def statistics(facts: Facts) -> Iterator[MethodsLine]:
    """Unit, intervals, tests and corrections."""
    yield from _intervals(facts)
    gate, arms = list(_gate(facts)), list(_arms(facts))
    compared = list(_comparisons(facts))
    if not (gate or arms or compared):
        yield Text(
            "The experiment contains no comparison of run tasks, gate or arms: no test was made."
        )
    yield from (*compared, *gate, *arms)


def _intervals(facts: Facts) -> Iterator[MethodsLine]:
    entries = {
        f"{name}, {metric}": entry
        for name, table in facts.scores.items()
        for metric, entry in table.values.items()
    }
    if not entries:
        return
    levels = sorted({one.level for one in entries.values() if one.level is not None})
    if all(one.n == one.clusters for one in entries.values()):
        unit = "Documents are the unit of chance; each scored sample is a document of its own."
    else:
        unit = (
            "Documents are the unit of chance: samples of one document are not independent, and intervals "
            "are clustered by document."
        )
    level = " and ".join(f"{one * 100:g} %" for one in levels)
    yield Text(f"{unit} Intervals have confidence {level}." if level else unit)
    if not level:
        yield Missing("The confidence level of the intervals.")
    texts: dict[str, list[str]] = {}
    for name, one in entries.items():
        text = joined(
            (
                f"{form.many(one.n, 'sample')} of {form.many(one.clusters, 'document')}",
                f"interval: {one.method}",
            )
        )
        texts.setdefault(text, []).append(name)
    yield Items(tuple(Item("; ".join(names), text) for text, names in texts.items()))
    for method in dict.fromkeys(one.method for one in entries.values()):
        if method not in _INTERVALS:
            yield Missing(
                f'A description of the interval "{method}": this version of hpcbench does not compute it.'
            )
            continue
        what, publications = _INTERVALS[method]
        yield Text(f'"{method}" {what}.')
        yield from map(Cited, publications)


def _comparisons(facts: Facts) -> Iterator[MethodsLine]:
    """Comparisons within the experiment, as the report makes them."""
    names = list(facts.scores)
    if facts.performance is not None:
        names = shown(facts.performance, names)
    found = leaders(facts.experiment, facts.scores, names)
    lines = [
        (f"{one['run_task']} with {rival['run_task']}", _compared(one, rival["p_method"]))
        for one in found
        for rival in one["rivals"]
        if rival["p"] is not None
    ]
    if lines:
        yield Text(
            "Within the experiment, the run task with the best value by the first metric was compared with "
            f"others of the same dataset, by hpcbench {hpcbench.__version__} when it wrote this text. "
            "Samples are paired; p-values are two-sided and after Holm's correction over these comparisons:"
        )
        yield Items(tuple(Item(name, text) for name, (text, _) in lines))
        yield Cited(_HOLM)
        yield from (Cited(cited) for _, (_, cited) in lines if cited)
    for one in found:
        for rival in one["rivals"]:
            if rival["p"] is None:
                yield Text(f"{rival['run_task']} was not compared: {rival['why']}.")


def _compared(one: Leader, method: str) -> tuple[str, str]:
    split = f", {one['split']}" if one["split"] else ""
    if method in _TESTS:
        test, cited = _TESTS[method]
    else:
        test = f"permutation test that swaps the two run tasks in whole documents ({method})"
        cited = _SWAPS if "random" in method else ""
    return f"{one['metric']} on {one['dataset']}{split}; {test}.", cited


def _gate(facts: Facts) -> Iterator[MethodsLine]:
    verdict, wrong = verdict_of(facts.experiment)
    yield from map(Missing, wrong)
    if verdict is None:
        return
    policy = facts.experiment.resolved.gate
    level = ""
    if policy is not None and policy.name == verdict["policy"]:
        level = f" Its intervals have confidence {policy.confidence * 100:g} %."
    else:
        yield Missing(f"The confidence level of the gate's policy {verdict['policy']}.")
    yield Text(
        f"A gate compared the experiment with the baseline {verdict['baseline']} by the policy "
        f"{verdict['policy']}: {verdict['verdict']}.{level}"
    )
    margins = tuple(
        Item(f"{one['run_task']}, {one['what']}", f"margin {one['margin']:g} ({one['level']}).")
        for one in verdict["checks"]
        if one["margin"] is not None
    )
    if margins:
        yield Items(margins)


def _arms(facts: Facts) -> Iterator[MethodsLine]:
    resolved = facts.experiment.resolved
    if resolved.arms is None:
        return
    arms = resolved.arms
    a, b = (
        " ".join(f"`{one}`" for one in arms.texts(letter)) or "the plan unchanged"
        for letter in "ab"
    )
    yield Text(
        f"Two arms were asked the same samples: a ({a}) and b ({b}). The risk of any false alarm is "
        f"{arms.alpha:g}, divided equally over the deciding endpoints."
    )
    if arms.early_stop:
        yield Text("The risk of each endpoint is spent over repeated looks, with an early stop.")
        yield Cited("Lan and DeMets 1983 (spending of the risk over looks)")
    items = []
    for pair in resolved.pairs:
        looks = looks_at(facts.experiment, pair)
        if not looks:
            yield Missing(f"A comparison of the arms of run task {pair}: no look was made.")
            continue
        last = looks[-1]
        texts = (
            f"decided by {', '.join(last['deciding'])}" if last["deciding"] else "",
            "both arms on the same workers" if last["same_nodes"] else "arms on different workers",
            f"last look after {last['done']} of {last['of']} pairs of blocks",
            f"level of this look {last['nominal']:.4g}",
            f"stopped early: {last['why']}" if last["stop"] else "",
        )
        items.append(Item(pair, joined(texts)))
    if items:
        yield Items(tuple(items))
