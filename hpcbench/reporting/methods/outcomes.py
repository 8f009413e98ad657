"""Outcomes of the samples, for a methods section."""

from __future__ import annotations

from collections.abc import Iterator

from hpcbench import number_format as form
from hpcbench.experiment.counts import DEFINITIONS, outcomes_in_words
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.view.evaluated import Scores
from hpcbench.reporting.blocks import Text
from hpcbench.reporting.methods.facts import Facts, Missing, Said, joined
from hpcbench.reporting.sections.failing import POLICY


def outcomes(facts: Facts) -> Iterator[Said]:
    """Counts of samples, and how samples without a usable answer count."""
    ended = outcome(facts.experiment)
    if ended is None:
        yield Missing("How the experiment ended: it has no outcome yet.")
    elif ended.state != "done":
        yield Text(f"The experiment is {ended.state}{ended.why}.")
    yield from facts.grouped({name: joined(_counts(table)) for name, table in facts.scores.items()})
    yield Text(
        "Definitions: " + "; ".join(f"{name}: {text}" for name, text in DEFINITIONS.items()) + "."
    )


def _counts(table: Scores) -> Iterator[str]:
    yield table.counts.sentence()
    yield f"coverage {form.share(table.coverage)}"
    yield f"requests: {outcomes_in_words(table.outcomes)}" if table.outcomes else ""
    for what, policy in (
        ("failed samples", table.on_failed),
        ("unreadable answers", table.on_invalid),
    ):
        yield f"{what} {POLICY[policy]}" if policy in POLICY else f"{what}: rule not recorded"
