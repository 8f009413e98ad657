"""The report tells groups, invalid answers, lost samples, and what a document took."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.experiment.view.usage import Hours
from hpcbench.files.atomic import read_json, write_json
from hpcbench.reporting.printed_tables import GROUPS, group_tables
from hpcbench.reporting.usage_rows import per_document
from hpcbench.reporting.writing import report
from tests.unit.evaluation.scene import asked, reported, strange
from tests.unit.reporting.test_report import written
from tests.unit.small import record


def shown(here: Experiment, manifest: Experiment) -> str:
    """The Markdown report, with a whole manifest around the experiment's own work."""
    whole = read_json(manifest.manifest_file) | {"work": read_json(here.manifest_file)["work"]}
    write_json(here.manifest_file, whole)
    report(Experiment(here.path))
    assert not (here.report_dir / "failed.txt").exists()
    assert (here.report_dir / "report.html").exists()
    return (here.report_dir / "report.md").read_text()


@pytest.mark.long
def test_groups_invalid_answers_and_faults_stand_in_the_report(tmp_path: Path) -> None:
    records = [
        record(n, references=[{"total": "1"}], metadata={"doc_type": "ab"[n % 2]}) for n in range(4)
    ]
    right = '{"total": "1"}'
    here = asked(
        tmp_path, [right, "none at all", right, right], strange("ByField", "Broken"), records,
        plugin="kie", dataset={"group_by": ("doc_type",)},
    )  # fmt: skip
    reported(here)
    text = shown(here, written(tmp_path / "other", {"s0": "0"}))
    assert "| a | 2 | 100.0 % | 1.000" in text
    failed = text[text.index("## Samples that failed") :]
    assert (
        "| rt | 4 | 4 | 3 | 1 | 0 | 0 | 75.0 % | 4 answered | count as the worst value of the metric |"
        " are left out |" in failed
    )
    assert "| rt | unreadable | " in failed
    assert "| rt | byfield | 1.000 | 0.750 |" in failed
    assert "| rt | not scored by broken | RuntimeError: never well | 4 | s0 |" in failed


def test_a_table_of_many_groups_is_cut_and_says_so(tmp_path: Path) -> None:
    records = [record(n, metadata={"page": n}) for n in range(GROUPS + 5)]
    answers: list[str | None] = [str(n) for n in range(GROUPS + 5)]
    dataset = {"group_by": ("page",)}
    reported(here := asked(tmp_path, answers, strange("Mean"), records, dataset=dataset))
    (table,) = group_tables(metrics_of(here).run_tasks)
    assert (len(table.lines), table.left_out) == (GROUPS, 5)
    assert table.lines[10][0] == "10", "in the order of numbers"


def test_what_a_document_took_is_all_that_was_allocated_over_documents_answered() -> None:
    hours = [
        Hours(run_task="a", unit="GPU", allocated=2.0, used=1.0),
        Hours(run_task="b", unit="CPU", allocated=2.0, used=1.0),
        Hours(run_task="c", unit="GPU", allocated=1.0, used=0.0),
    ]
    found = per_document(hours, {"a": 100, "b": 100, "c": 0}, 3.0)
    assert found == {
        "a": {"gpu_seconds_per_document": 72.0, "cost_per_1000_documents": pytest.approx(60.0)}
    }
    assert per_document(hours, {"a": 100}, None)["a"]["cost_per_1000_documents"] is None
