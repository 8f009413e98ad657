"""Exports: what is seen, all of it and nothing else; and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, cast

import polars
import pytest

from hpcbench.portal.context import Portal
from hpcbench.portal.index import ExperimentQuery, RunTaskQuery
from hpcbench.portal.index.sql_index import Index
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow, Score
from hpcbench.portal.sample_table import sample_cache_of
from tests.unit.portal.asking import evaluated, portal_over, scored
from tests.unit.portal.unguarded import Answer, unguarded
from tests.unit.small import record

ID = "20261120-1432-plan-aaaa"
OTHER = "20261120-1432-plan-bbbb"
BELOW = f"experiments/{ID}/run-tasks/rt/samples/export"

FORMULAS = [
    "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx", "\u200b=1", "＝1", "\n=1",
]  # fmt: skip


def read(form: str, answer: Answer) -> list[dict[str, Any]]:
    """Rows of an export."""
    assert answer.status == 200, answer.body
    if form == "csv":
        text = answer.body.decode("utf-8")
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if form == "json":
        found: list[dict[str, Any]] = json.loads(answer.body)
        return found
    return polars.read_parquet(io.BytesIO(answer.body)).to_dicts()


def get(portal: Portal, path: str, form: str) -> list[dict[str, Any]]:
    with unguarded(portal) as api:
        return read(form, api.raw("GET", f"{path}{'&' if '?' in path else '?'}format={form}"))


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_samples_are_exported_as_they_are_filtered_and_sorted(tmp_path: Path, form: str) -> None:
    rows = [{"anls": value, "meta.lang": "en"} for value in (0.9, 1.0, 0.1, None, 0.5)]
    scored(tmp_path, rows, ("anls",))
    found = get(portal_over(tmp_path), f"{BELOW}?wrong=1&sort=anls&order=desc", form)
    assert [int(row["place"]) for row in found] == [0, 4, 2]
    assert [float(row["anls"]) for row in found] == [0.9, 0.5, 0.1]
    assert {row["meta.lang"] for row in found} == {"en"}


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_export_has_whole_texts_times_and_notes(tmp_path: Path, form: str) -> None:
    long = "word " * 400
    evaluated(tmp_path, ["0", long, None])
    portal = portal_over(tmp_path)
    sample_cache_of(portal).flags.mark(ID, "rt", "s1", "look")
    found = get(portal, BELOW, form)
    assert [row["answer"] or None for row in found] == ["0", long, None]
    assert [row["note"] or None for row in found] == [None, "look", None]
    assert float(found[0]["latency"]) == 0.001
    assert found[2]["error"] == "the engine hung up"
    references = found[1]["references"]
    assert (json.loads(references) if form == "csv" else references) == ["1"]


def test_nothing_in_csv_is_a_formula(tmp_path: Path) -> None:
    lines = [record(number, id=f"={number}", document="@d") for number in range(len(FORMULAS))]
    evaluated(tmp_path, FORMULAS, lines)
    portal = portal_over(tmp_path)
    sample_cache_of(portal).flags.mark(ID, "rt", "=0", "=note()")
    found = get(portal, BELOW, "csv")
    assert [row["answer"] for row in found] == [f"'{text}" for text in FORMULAS]
    assert {row["document"] for row in found} == {"'@d"}
    assert (found[0]["sample"], found[0]["note"]) == ("'=0", "'=note()")
    plain = get(portal_over(tmp_path), BELOW, "json")
    assert [row["answer"] for row in plain] == FORMULAS


def test_what_is_saved_has_a_harmless_name_and_is_never_shown_as_a_page(tmp_path: Path) -> None:
    scored(tmp_path, [{"anls": 0.5}], ("anls",))
    with unguarded(portal_over(tmp_path)) as api:
        for form, kind in (
            ("csv", "text/csv"),
            ("json", "application/json"),
            ("parquet", "parquet"),
        ):
            found = api.raw("GET", f"{BELOW}?format={form}")
            wanted = f'attachment; filename="{ID}-rt-samples.{form}"'
            assert found.headers["content-disposition"] == wanted
            assert kind in found.headers["content-type"]
        assert api.ask("GET", f"{BELOW}?format=html").status == 422


def test_an_export_of_nothing_is_an_empty_table(tmp_path: Path) -> None:
    scored(tmp_path, [{"anls": 0.5}], ("anls",))
    for form in ("csv", "json", "parquet"):
        assert get(portal_over(tmp_path), f"{BELOW}?outcome=failed", form) == []


def test_more_rows_than_a_batch_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpcbench.portal import exporting

    monkeypatch.setattr(exporting, "BATCH", 7)
    scored(tmp_path, [{"anls": place / 100} for place in range(40)], ("anls",))
    for form in ("csv", "json", "parquet"):
        found = get(portal_over(tmp_path), f"{BELOW}?sort=anls&order=desc", form)
        assert [int(row["place"]) for row in found] == list(range(39, -1, -1))


def test_flips_and_metrics_of_a_comparison_are_exported(tmp_path: Path) -> None:
    for name, values in ((ID, [1.0, 0.5, 0.0]), (OTHER, [0.0, 0.5, 1.0])):
        rows = [
            {
                "anls": value,
                "anls.numerator": value,
                "anls.denominator": 1.0,
                "answer": "=1",
                "references": ["@r", "r"],
            }
            for value in values
        ]
        scored(tmp_path, rows, ("anls",), name)
    portal = portal_over(tmp_path)
    runs = f"runs={ID}&runs={OTHER}"
    (metric,) = get(portal, f"compare/export?{runs}", "csv")
    assert (metric["metric"], float(metric["won"]), float(metric["both_partly"])) == (
        "anls",
        1.0,
        1.0,
    )
    found = get(portal, f"compare/export?{runs}&what=flips", "csv")
    assert [(row["change"], row["baseline_answer"], row["references"]) for row in found] == [
        ("lost", "'=1", "'@r | r"),
        ("won", "'=1", "'@r | r"),
    ]
    some = f"compare/export?{runs}&what=flips&run_task=rt&other=rt&metric=anls&common=true"
    assert [row["sample"] for row in get(portal, f"{some}&change=won", "json")] == ["s2"]
    assert [
        row["sample"]
        for row in get(portal, f"compare/export?{runs}&what=flips&change=both_partly", "json")
    ] == ["s1"]


class Listed:
    """An index of seven experiments and run tasks, three a page."""

    asked: Any = None

    def experiments(self, query: ExperimentQuery) -> Page[ExperimentRow]:
        """A page."""
        self.asked = query
        return self._page([_experiment(number) for number in range(7)], query.after)

    def run_tasks(self, query: RunTaskQuery) -> Page[RunTaskRow]:
        """A page."""
        self.asked = query
        return self._page([_run_task(number) for number in range(7)], query.after)

    def _page(self, rows: list[Any], after: str | None) -> Page[Any]:
        start = int(after or 0)
        end = start + 3
        return Page[Any](items=tuple(rows[start:end]), next=str(end) if end < 7 else None, total=7)


def _experiment(number: int) -> ExperimentRow:
    return ExperimentRow(
        id=f"e{number}", plan="=plan", state="done", created=1.0, updated=2.0, owner="@me", models=("m", "n"),
        datasets=("d",), run_tasks=1, tasks_by_state={"done": 1}, samples=10, answered=10,
        score=Score(metric="anls", value=0.5) if number else None,
    )  # fmt: skip


def _run_task(number: int) -> RunTaskRow:
    return RunTaskRow(
        experiment=ID, name=f"rt{number}", ml_task="vqa", model="m", dataset="d", prompt="p", state="done",
        samples=10, answered=10, scores=(Score(metric="anls", value=0.5), Score(metric="cer", value=None)),
    )  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_lists_are_exported_with_their_filter_page_by_page(tmp_path: Path, form: str) -> None:
    scored(tmp_path, [{"anls": 0.5}], ("anls",))
    portal = portal_over(tmp_path)
    index = Listed()
    portal.index = cast(Index, index)
    found = get(portal, "experiments/export?state=done&text=x&model=m&sort=plan&order=asc", form)
    assert [row["id"] for row in found] == [f"e{number}" for number in range(7)]
    assert (index.asked.states, index.asked.text, index.asked.models) == (("done",), "x", ("m",))
    assert (index.asked.sort, index.asked.order) == ("plan", "asc")
    assert found[0]["owner"] == ("'@me" if form == "csv" else "@me")
    assert found[0]["score"] in (None, "")
    assert float(found[1]["score"]) == 0.5
    tasks = get(portal, f"experiments/{ID}/run-tasks/export?dataset=d", form)
    assert [row["name"] for row in tasks] == [f"rt{number}" for number in range(7)]
    assert index.asked.experiment == ID
    assert json.loads(tasks[0]["scores"]) == {"anls": 0.5, "cer": None}
