"""Tables by groups: the levels of a dataset, any columns, fields, weights, macro averages, pivots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import UserError
from hpcbench.evaluation import stage
from hpcbench.evaluation.score_tables import Scored, pivot, table
from hpcbench.experiment.layout import Experiment
from tests.unit.evaluation.scene import asked, reported, strange
from tests.unit.small import record

KINDS = ("invoice", "receipt")


def grouped(folder: Path, metrics: Any = None, count: int = 12, **task: Any) -> Experiment:
    """Samples in two kinds of documents and three question types; every third answer is wrong."""
    records = [
        record(
            n,
            document=f"d{n // 2}",
            metadata={
                "doc_type": KINDS[n // 2 % 2], "question_type": str(n % 3 + 9), "pages": n % 2 + 1
            },
        )
        for n in range(count)
    ]  # fmt: skip
    answers = [str(n) if n % 3 else "wrong" for n in range(count)]
    dataset = {"group_by": ("doc_type", "question_type")}
    return asked(folder, answers, metrics or strange("Mean"), records, dataset=dataset, **task)


def scored(here: Experiment, *columns: str) -> list[Scored]:
    """Its scores, with these columns too."""
    return [
        stage.score(here, stage.subject_of(here, one, columns=columns))[0]
        for one in here.resolved.run_tasks
    ]


def values(rows: Any, key: str) -> dict[str | None, float]:
    return {row.by[key]: row.value for row in rows}


def test_the_metrics_file_has_each_column_of_group_by_and_all_together(tmp_path: Path) -> None:
    groups = reported(grouped(tmp_path))["groups"]
    assert [level["by"] for level in groups] == [
        ["doc_type"], ["question_type"], ["doc_type", "question_type"],
    ]  # fmt: skip
    by_type = {row["by"]["question_type"]: row["value"] for row in groups[1]["rows"]}
    assert by_type == {"9": 0.0, "10": 1.0, "11": 1.0}
    assert list(by_type) == ["9", "10", "11"], "numbers are sorted as numbers"
    assert [row["n"] for row in groups[0]["rows"]] == [6, 6]
    assert {"n", "documents", "coverage", "value", "low", "high", "method", "average"} <= set(
        groups[0]["rows"][0]
    )


def test_groups_make_up_the_whole(tmp_path: Path) -> None:
    some = scored(grouped(tmp_path))
    (whole,) = table(some)
    parts = table(some, ["doc_type", "question_type"])
    assert sum(row.n for row in parts) == whole.n == 12
    assert whole.value == pytest.approx(sum(row.value * row.n for row in parts) / whole.n)


def test_any_metadata_can_be_grouped_by_once_it_is_asked_for(tmp_path: Path) -> None:
    some = scored(grouped(tmp_path), "pages")
    assert set(values(table(some, ["pages"]), "pages")) == {"1", "2"}
    assert set(values(table(some, ["outcome"]), "outcome")) == {"ok"}
    assert set(values(table(some, ["model"]), "model")) == {"m"}
    with pytest.raises(UserError, match="unknown column to group by 'page'.*pages"):
        table(some, ["page"])


def test_run_tasks_stand_apart_unless_they_are_grouped_by_model(tmp_path: Path) -> None:
    first, second = scored(grouped(tmp_path / "a")), scored(grouped(tmp_path / "b", count=6))
    renamed = second[0].run_task.model_copy(
        update={"task": second[0].run_task.task.model_copy(update={"name": "other"})}
    )
    both = [*first, Scored(renamed, second[0].metrics, second[0].place)]
    # The scores of `other` lie under the name that they were made with.
    assert [row.by["run_task"] for row in table(both)] == ["rt", "other"]
    (pooled,) = table(both, ["model"])
    assert (pooled.n, pooled.by) == (18, {"model": "m"})
    assert pooled.documents == 6, "the same documents of the same dataset"


def test_two_options_of_one_metric_are_never_put_together(tmp_path: Path) -> None:
    one = scored(grouped(tmp_path / "a"))
    other = scored(grouped(tmp_path / "b", strange("Mean", Mean={"factor": 0.5})))
    assert [row.signature for row in table([*one, *other], ["model"])] == [
        "mean|factor:1|v1", "mean|factor:0.5|v1",
    ]  # fmt: skip


def test_fields_are_a_level_of_their_own(tmp_path: Path) -> None:
    references = {"total": "1", "date": "today"}
    records = [record(n, references=[references], document=f"d{n}") for n in range(4)]
    right, half = '{"total": "1", "date": "today"}', '{"total": "1", "date": "?"}'
    here = asked(
        tmp_path, [right, half, half, "unreadable"], strange("ByField"), records, plugin="kie"
    )
    levels = reported(here)["groups"]
    (level,) = [one for one in levels if one["by"] == ["field"]]
    rows = {row["by"]["field"]: row for row in level["rows"]}
    assert (rows["total"]["value"], rows["date"]["value"]) == (1.0, pytest.approx(1 / 3))
    assert (rows["date"]["n"], rows["date"]["invalid"], rows["date"]["asked"]) == (3, 1, 4)
    assert rows["date"]["value_if"] == {"exclude": pytest.approx(1 / 3), "zero": 0.25}


def test_a_macro_average_is_the_mean_of_the_groups_and_says_so(tmp_path: Path) -> None:
    some = scored(grouped(tmp_path, count=20), "pages")
    groups = table(some, ["question_type"])
    (macro,) = table(some, ["question_type"], macro=True)
    assert macro.value == pytest.approx(sum(row.value for row in groups) / 3)
    assert macro.value != table(some)[0].value
    assert (macro.average, macro.by["macro"]) == ("macro", "question_type")
    assert groups[0].average == "micro"


def test_weights_are_a_column_of_numbers(tmp_path: Path) -> None:
    some = scored(grouped(tmp_path), "pages", "question")
    (row,) = table(some, weight="pages")
    right = [n for n in range(12) if n % 3]
    assert row.value == pytest.approx(sum(n % 2 + 1 for n in right) / 18)
    assert row.weight == "pages"
    with pytest.raises(UserError, match="'question' cannot be the samples' weight"):
        table(some, weight="question")


def test_corpus_metrics_are_combined_in_every_group(tmp_path: Path) -> None:
    some = scored(grouped(tmp_path, strange("Mean", "Counted"), count=40))
    rows = table(some, ["doc_type"])
    mean, counted = (
        {row.by["doc_type"]: row for row in rows if row.metric == name}
        for name in ("mean", "counted")
    )
    for kind in KINDS:
        assert counted[kind].value == pytest.approx(mean[kind].value)
        assert counted[kind].low is not None
        assert counted[kind].low <= counted[kind].value


def test_a_pivot_sets_one_column_beside_the_other(tmp_path: Path) -> None:
    rows = table(scored(grouped(tmp_path)), ["doc_type", "question_type"])
    heads, lines = pivot(rows, "doc_type", "question_type")
    assert heads == ["9", "10", "11"]
    assert [(metric, line) for metric, line, _ in lines] == [("mean", kind) for kind in KINDS]
    assert lines[0][2]["9"].value == 0.0


def test_a_group_without_metadata_is_one_of_its_own(tmp_path: Path) -> None:
    records = [record(0, metadata={"doc_type": "a"}), record(1)]
    dataset = {"group_by": ("doc_type",)}
    here = asked(tmp_path, ["0", "1"], strange("Mean"), records, dataset=dataset)
    assert values(table(scored(here), ["doc_type"]), "doc_type") == {"a": 1.0, None: 1.0}


def test_a_level_of_very_many_groups_is_counted_and_not_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.evaluation.summary.MOST_GROUPS", 2)
    levels = {tuple(one["by"]): one for one in reported(grouped(tmp_path))["groups"]}
    assert (levels["question_type",]["groups"], levels["question_type",]["rows"]) == (3, [])
    assert len(levels["doc_type",]["rows"]) == 2


def test_samples_are_grouped_by_how_many_pages_they_have(tmp_path: Path) -> None:
    here = asked(tmp_path, ["0", "1", "wrong"], strange("Mean"))
    rows = table(scored(here), ["images"])
    assert [(row.by["images"], row.n, row.value) for row in rows] == [
        ("1", 3, pytest.approx(2 / 3))
    ]
