"""Outcomes of the samples, for a methods section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcbench import number_format as form
from hpcbench.experiment.counts import DEFINITIONS, outcomes_in_words
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.reused import Reused, reused_of
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.reporting.blocks import Text
from hpcbench.reporting.methods.facts import Facts, MethodsLine, Missing, joined
from hpcbench.reporting.sections.failing import POLICY


def outcomes(facts: Facts) -> Iterator[MethodsLine]:
    """Counts of samples, and how samples without a usable answer count."""
    ended = outcome(facts.experiment)
    if ended is None:
        yield Missing("How the experiment ended: it has no outcome yet.")
    elif ended.state != "done":
        yield Text(f"The experiment is {ended.state}{ended.why}.")
    reused = (reused_of(facts.experiment) or Reused()).run_tasks
    counts = {
        name: joined([*_counts(table), _taken_over(reused.get(name, {}))])
        for name, table in facts.scores.items()
    }
    yield from facts.grouped(counts)
    yield Text(
        "Definitions: " + "; ".join(f"{name}: {text}" for name, text in DEFINITIONS.items()) + "."
    )


def _taken_over(experiments: Mapping[str, int]) -> str:
    """How many answers are of earlier experiments, and of which."""
    if not experiments:
        return ""
    named = ", ".join(f"{name}: {count:,}" for name, count in sorted(experiments.items()))
    count = sum(experiments.values())
    return f"{count:,} of the answers are of earlier experiments, to the same requests ({named})"


def _counts(table: Scores) -> Iterator[str]:
    yield table.counts.sentence()
    yield f"coverage {form.share(table.coverage)}"
    yield f"requests: {outcomes_in_words(table.outcomes)}" if table.outcomes else ""
    for what, policy in (
        ("failed samples", table.on_failed),
        ("unreadable answers", table.on_invalid),
    ):
        yield f"{what} {POLICY[policy]}" if policy in POLICY else f"{what}: rule not recorded"
