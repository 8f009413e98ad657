"""Counts of samples: one vocabulary, the same in files, documents and pages."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.counts import DEFINITIONS, OUTCOMES, Counts, outcomes_in_words, total
from hpcbench.experiment.view.metrics_json import Scores
from tests.conftest import ROOT

PARTS = st.tuples(*[st.integers(0, 1_000)] * 4)


def counts(ok: int, unreadable: int, failed: int, skipped: int) -> Counts:
    return Counts(ok + unreadable + failed, ok + unreadable, unreadable, skipped)


@given(PARTS)
def test_parts_add_up(parts: tuple[int, int, int, int]) -> None:
    found = counts(*parts)
    assert found.asked == found.responded + found.failed
    assert found.responded == found.ok + found.unreadable
    assert 0 <= found.coverage <= 1
    assert (found.ok, found.unreadable, found.failed, found.skipped) == parts


@given(st.lists(PARTS, max_size=5))
def test_the_whole_is_the_sum_of_run_tasks(each: list[tuple[int, int, int, int]]) -> None:
    whole = total(counts(*parts) for parts in each)
    assert whole.ok == sum(ok for ok, *_ in each)
    assert whole.failed == sum(failed for _, _, failed, _ in each)
    assert whole.coverage == (whole.ok / whole.whole if whole.whole else 0)


def test_tables_of_earlier_versions_get_the_new_counts() -> None:
    table = {
        "asked": 34, "answered": 20, "invalid": 4, "metrics": {}, "groups": [],
        "outcomes": {"ok": 20, "failed": 4, "missing": 10},
    }  # fmt: skip
    found = Scores.model_validate(table)
    names = ("asked", "responded", "ok", "unreadable", "failed")
    assert [getattr(found, name) for name in names] == [34, 20, 16, 4, 14]
    assert (found.answered, found.invalid) == (20, 4)
    assert (
        found.counts.sentence()
        == "34 asked: 20 responded (16 ok, 4 unreadable), 14 failed (10 not asked)"
    )


def test_no_outcome_has_the_word_of_another_count() -> None:
    assert not (set(OUTCOMES.values()) - {"failed"}) & set(DEFINITIONS)
    assert outcomes_in_words({"ok": 2, "invalid": 8, "failed": 0}) == "8 bad request, 2 answered"


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_documents_and_pages_define_counts_alike(name: str) -> None:
    measuring = (ROOT / "docs/measuring.md").read_text()
    assert f"| `{name}` | {DEFINITIONS[name]} |" in measuring
    pages = (ROOT / "portal/src/ui/counts.ts").read_text()
    assert f"  {name}: {json.dumps(DEFINITIONS[name], ensure_ascii=False)}," in pages


def test_pages_have_the_words_of_outcomes() -> None:
    text = (ROOT / "portal/src/ui/states.ts").read_text()
    own = text[text.index("OUTCOME_LOOKS") :]
    found = dict(re.findall(r'^  (\w+): look\("\w+", "\w+", "([^"]+)"', own, re.MULTILINE))
    assert found == dict(OUTCOMES)
