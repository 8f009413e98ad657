"""Scores files: the same in any batches, made again only where something changed, whole after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.evaluation import stage
from hpcbench.evaluation.scores import Change
from hpcbench.experiment.archiving import fold
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import KEYS, ScoresFiles, read_keys
from hpcbench.schema.metric import Metric
from hpcbench.schema.records import Response
from hpcbench.speed import LATENCIES
from tests.conftest import ROOT
from tests.unit.evaluation import strange as metrics_module
from tests.unit.evaluation.scene import asked, reported, strange, with_metrics
from tests.unit.small import record, response, write_attempt

ANSWERS: list[str | None] = [str(n) if n % 3 else "wrong" for n in range(30)]
FULL = strange("Mean", "Counted", "Raises")


def scores(here: Experiment) -> Any:
    import polars

    return polars.read_parquet(here.scores_file("rt"))


def change(here: Experiment, **more: Any) -> Change:
    """Changes by scoring it again."""
    (one,) = here.resolved.run_tasks
    return stage.score(here, stage.subject_of(here, one), **more)[1]


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("shard_size", [4, 30])
def test_the_bytes_do_not_depend_on_shards_or_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, shard_size: int
) -> None:
    records = [record(n, document=f"d{n // 4}") for n in range(30)]
    plain = asked(tmp_path / "a", ANSWERS, FULL, records, shard_size=11)
    reported(plain)
    monkeypatch.setattr("hpcbench.evaluation.scoring.BATCH", batch)
    monkeypatch.setattr("hpcbench.evaluation.scores.SPILL", 2000)
    other = asked(tmp_path / "b", ANSWERS, FULL, records, shard_size=shard_size)
    reported(other)
    assert plain.metrics_file.read_bytes() == other.metrics_file.read_bytes()
    assert scores(plain).equals(scores(other))
    assert [path.name for path in other.scores_dir.iterdir()] == ["rt.parquet"]


def test_times_and_tokens_are_those_that_speed_tells(tmp_path: Path) -> None:
    here = asked(tmp_path, ["0", None, "2", "3"], FULL, shard_size=4)
    path = here.shard_responses("rt", 0, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"chunks":[', b'"chunks":[],"was":[')  # damaged
    path.write_bytes(b"".join(lines))
    reported(here)
    found = scores(here)
    one = Response.from_json(json.loads(lines[0]))
    assert found["e2e_ms"].to_list() == [LATENCIES["e2e_ms"](one), None, found["e2e_ms"][2], None]
    assert found["completion_tokens"][0] == one.usage["completion_tokens"]
    assert found["outcome"].to_list() == ["ok", "failed", "ok", "ok"]


def test_what_is_scored_is_not_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = asked(tmp_path, ANSWERS, FULL)
    reported(here)
    files = sorted(here.scores_dir.iterdir())
    before = [path.stat().st_mtime_ns for path in files]
    monkeypatch.setattr(metrics_module.Mean, "score", None)  # a call to it raises
    assert change(here) == Change((), ("mean", "counted", "raises"), written=False)
    reported(here)
    assert [path.stat().st_mtime_ns for path in files] == before


def test_a_changed_metric_is_scored_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = asked(tmp_path, ANSWERS, FULL)
    reported(here)
    before = scores(here)
    changed = with_metrics(here, strange("Mean", "Counted", "Raises", Mean={"factor": 0.5}))
    monkeypatch.setattr(metrics_module.Counted, "score", None)
    done = change(changed)
    assert (done.scored, done.kept) == (("mean",), ("counted", "raises"))
    after = scores(changed)
    assert after["mean"].to_list() == [value * 0.5 for value in before["mean"].to_list()]
    others = [name for name in before.columns if not name.startswith("mean")]
    assert after.select(others).equals(before.select(others))
    assert after.columns == before.columns


def test_a_metric_whose_code_was_corrected_is_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from tests.unit.evaluation.strange import Mean\n\nclass Own(Mean):\n    name = 'own'\n"
    module = tmp_path / "metric_of_mine.py"
    module.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = Metric(name="own", plugin="metric_of_mine.Own")
    here = asked(tmp_path / "home", ANSWERS, (*strange("Mean"), own))
    reported(here)
    assert change(here).scored == ()
    module.write_text(f"{code}    # corrected\n")
    assert change(here).scored == ("own",)


def test_a_metric_more_and_one_less_leave_the_others_alone(tmp_path: Path) -> None:
    here = asked(tmp_path, ANSWERS, strange("Mean", "Raises"))
    reported(here)
    assert change(with_metrics(here, strange("Counted", "Mean"))).scored == ("counted",)
    names = scores(here).columns
    assert names.index("counted") < names.index("mean"), "in the plan's order"
    assert "raises" not in names


@pytest.mark.parametrize("how", ["answer", "policy", "dataset", "reading"])
def test_what_determines_scores_makes_them_again(tmp_path: Path, how: str) -> None:
    here = asked(tmp_path, ANSWERS, strange("Mean"), shard_size=20)
    reported(here)
    (one,) = here.resolved.run_tasks
    if how == "answer":
        write_attempt(here, 1, 2, [response("s29", "another")])
    updates: dict[str, Any] = {
        "policy": {"task": one.task.model_copy(update={"on_invalid": "zero"})},
        "dataset": {"dataset": one.dataset.model_copy(update={"split": "b"})},
        "reading": {"ml_task": one.ml_task.model_copy(update={"reasoning": "keep"})},
    }
    subject = stage.subject_of(here, one.model_copy(update=updates.get(how, {})))
    assert stage.what_is_due(here, subject).scored == ("mean",)


def test_words_for_people_change_nothing(tmp_path: Path) -> None:
    here = asked(tmp_path, ANSWERS, strange("Mean"))
    reported(here)
    (one,) = here.resolved.run_tasks
    renamed = {
        "dataset": one.dataset.model_copy(update={"notes": "seen"}),
        "ml_task": one.ml_task.model_copy(update={"description": "other words"}),
        "metrics": tuple(m.model_copy(update={"notes": "seen"}) for m in one.metrics),
    }
    subject = stage.subject_of(here, one.model_copy(update=renamed))
    assert not stage.what_is_due(here, subject).written


def test_folding_the_answers_changes_nothing(tmp_path: Path) -> None:
    here = asked(tmp_path, ANSWERS, strange("Mean"), shard_size=10)
    reported(here)
    assert fold(here, "rt")
    assert not change(Experiment(here.path)).written


def test_other_columns_are_added_without_scoring(tmp_path: Path) -> None:
    records = [record(n, metadata={"language": "ru" if n % 2 else "en"}) for n in range(30)]
    here = asked(tmp_path, ANSWERS, strange("Mean"), records)
    reported(here)
    (one,) = here.resolved.run_tasks
    more = stage.subject_of(here, one, columns=["language"])
    done = stage.score(here, more)[1]
    assert (done.scored, done.kept, done.written) == ((), ("mean",), True)
    assert scores(here)["meta.language"].to_list()[:2] == ["en", "ru"]
    assert not change(here).written, "who wants fewer columns has them"


def test_a_column_that_an_earlier_version_did_not_write_is_added_without_scoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars

    here = asked(tmp_path, ANSWERS, strange("Mean"))
    reported(here)
    path, now = here.scores_file("rt"), scores(here)
    metadata = polars.read_parquet_metadata(path)
    now.drop("mistake").write_parquet(path, metadata={KEYS: metadata[KEYS]})
    monkeypatch.setattr(metrics_module.Mean, "score", None)
    assert change(here).written
    assert scores(here).equals(now)
    assert not change(here).written


def test_fields_of_metrics_that_stay_stay(tmp_path: Path) -> None:
    import polars

    records = [record(n, references=[{"total": "1"}]) for n in range(3)]
    here = asked(tmp_path, ['{"total": "1"}'] * 3, strange("ByField"), records, plugin="kie")
    reported(here)
    changed = with_metrics(here, strange("ByField", "Readable"))
    assert change(changed).scored == ("readable",)
    fields = polars.read_parquet(ScoresFiles(here.scores_dir, "rt").fields)
    assert fields["field"].to_list() == ["total"] * 3


def test_fields_that_are_not_scored_any_more_leave_no_file(tmp_path: Path) -> None:
    records = [record(n, references=[{"total": "1"}]) for n in range(3)]
    here = asked(tmp_path, ['{"total": "1"}'] * 3, strange("ByField"), records, plugin="kie")
    reported(here)
    assert len(list(here.scores_dir.iterdir())) == 2
    reported(with_metrics(here, strange("Readable")))
    assert [path.name for path in here.scores_dir.iterdir()] == ["rt.parquet"]


@pytest.mark.parametrize("broken", ["rt.parquet", "rt.fields.parquet"])
def test_files_that_do_not_belong_together_are_made_again(tmp_path: Path, broken: str) -> None:
    records = [record(n, references=[{"total": "1"}]) for n in range(3)]
    here = asked(tmp_path, ['{"total": "1"}'] * 3, strange("ByField"), records, plugin="kie")
    reported(here)
    good = here.metrics_file.read_bytes()
    (here.scores_dir / broken).write_bytes(b"no such thing")
    assert read_keys(ScoresFiles(here.scores_dir, "rt")) is None
    reported(here)
    assert here.metrics_file.read_bytes() == good
    assert read_keys(ScoresFiles(here.scores_dir, "rt")) is not None


KILLED = """
import os, signal, sys
from pathlib import Path
from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment

at, calls = int(sys.argv[2]), 0
def die(*arguments):
    global calls
    calls += 1
    if calls > at:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(*arguments)
replace, os.replace = os.replace, die
here = Experiment(Path(sys.argv[1]))
(one,) = here.resolved.run_tasks
stage.score(here, stage.subject_of(here, one))
"""


@pytest.mark.long
@pytest.mark.parametrize("at", [0, 1])
def test_a_kill_while_scores_are_written_leaves_whole_files(tmp_path: Path, at: int) -> None:
    """Killed before the 1st and 2nd file takes its name: fields, then samples."""
    import polars

    records = [record(n, references=[{"total": "1"}]) for n in range(3)]
    here = asked(tmp_path, ['{"total": "1"}'] * 3, strange("ByField"), records, plugin="kie")
    reported(here)
    old = scores(here)
    changed = with_metrics(here, strange("ByField", "Mean"))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(here.path), str(at)],
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert polars.read_parquet(here.scores_file("rt")).equals(old)
    assert (read_keys(ScoresFiles(here.scores_dir, "rt")) is None) == (at == 1)
    table = reported(Experiment(changed.path))
    assert set(table["metrics"]) == {"byfield", "mean"}
    assert read_keys(ScoresFiles(here.scores_dir, "rt")) is not None


def test_a_metric_called_like_a_column_is_refused(tmp_path: Path) -> None:
    from hpcbench.errors import UserError

    here = asked(tmp_path, ["0"], [Metric(name="answer", plugin="exact_match")])
    with pytest.raises(UserError, match="cannot have the name 'answer'"):
        reported(here)
