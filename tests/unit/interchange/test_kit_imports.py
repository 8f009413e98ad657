"""Other kits' results become experiments that every verb reads, and nothing in them is invented."""

from __future__ import annotations

import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import polars
import pytest

from hpcbench.cli.main import main
from hpcbench.comparison.compare import compare
from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.experiment.view.performance_json import performance_of
from hpcbench.interchange import vlmevalkit
from hpcbench.status import status
from tests.unit.command import Cli
from tests.unit.interchange import kits


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))


def brought(tmp_path: Path, place: Path, kit: str, *words: str) -> Experiment:
    """The experiment that the verb makes."""
    assert main(["import", str(place), "--from", kit, *words]) == 0
    return list(all_experiments(tmp_path / "home"))[-1]


def scores(here: Experiment, run_task: str) -> dict[str, list[Any]]:
    return polars.read_parquet(here.scores_file(run_task)).to_dict(as_series=False)


def test_results_of_lmms_eval_are_an_experiment_with_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    here = brought(tmp_path, folder, "lmms-eval")
    assert capsys.readouterr().out == f"{here.id}\n"
    (one,) = here.resolved.run_tasks
    assert (one.name, one.model.name) == ("docvqa_val", "Qwen/Qwen2-VL-2B-Instruct")
    found = scores(here, "docvqa_val")
    assert found["anls"] == kits.ANLS
    assert found["outcome"] == ["ok", "ok", "ok", "failed"]  # a failed request is no answer
    assert found["answer"] == [*kits.ANSWERS[:3], None]
    assert found["references"] == kits.TRUTH
    reported = metrics_of(here).to_json()["run_tasks"]["docvqa_val"]
    assert reported["metrics"]["anls"]["value"] == pytest.approx(0.6)
    assert reported["metrics"]["anls"]["signature"] == "anls|kit:lmms-eval|task:docvqa_val@1.0|v1"
    assert reported["coverage"] == 0.75


def test_the_manifest_says_where_it_comes_from_and_what_is_not_known(tmp_path: Path) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    here = brought(tmp_path, folder, "lmms-eval")
    origin: Any = here.manifest.imported
    assert (origin["kit"], origin["kit_version"]) == ("lmms-eval", "00000000")
    assert {Path(path).name for path in origin["files"]} == {one.name for one in folder.iterdir()}
    assert all(value.startswith("sha256:") for value in origin["files"].values())
    assert origin["tasks"]["docvqa_val"]["aggregates"] == {"anls,none": 0.6}
    assert "times" in origin["not_known"]


def test_keys_in_a_runs_account_of_itself_are_not_copied(tmp_path: Path) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    (path,) = folder.glob("*_results.json")
    secret = "sk-very-secret"  # noqa: S105 - of the test
    reported = json.loads(path.read_text())
    arguments = f"pretrained=Qwen/Qwen2-VL-2B,api_key={secret},dtype=auto"
    reported["config"] |= {"model_args": arguments, "hf_token": secret}
    path.write_text(json.dumps(reported))
    here = brought(tmp_path, folder, "lmms-eval")
    assert "pretrained=Qwen/Qwen2-VL-2B,api_key=…" in here.manifest_file.read_text()
    for one in here.path.rglob("*"):
        assert one.is_dir() or secret.encode() not in one.read_bytes(), one


def test_no_time_is_invented(tmp_path: Path) -> None:
    here = brought(tmp_path, kits.lmms_eval(tmp_path / "logs"), "lmms-eval")
    reported = performance_of(here).to_json()["run_tasks"]["docvqa_val"]
    for name in ("ttft_ms", "e2e_ms", "tpot_ms", "answers_per_s", "tokens_per_s", "memory"):
        assert not reported[name], name
    assert status(here).rate is None
    assert {one.tries for _, found in answers_of(here, "docvqa_val") for one in found.values()} == {
        0
    }


def test_every_verb_takes_it_for_an_experiment_that_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = brought(tmp_path, kits.lmms_eval(tmp_path / "logs"), "lmms-eval")
    assert status(here).state == "done"
    before = here.metrics_file.read_bytes(), scores(here, "docvqa_val")
    for words in (
        ["list"],
        ["status", "@last"],
        ["score", "@last"],
        ["usage", "@last"],
        ["resume", "@last"],
    ):
        assert main(words) == 0, words
    assert "nothing to resume" in capsys.readouterr().err
    assert (here.metrics_file.read_bytes(), scores(here, "docvqa_val")) == before


def test_the_kits_numbers_come_back_when_scores_are_lost(tmp_path: Path) -> None:
    here = brought(tmp_path, kits.lmms_eval(tmp_path / "logs"), "lmms-eval")
    before = scores(here, "docvqa_val")
    here.scores_file("docvqa_val").unlink()
    assert main(["score", here.id]) == 0
    assert scores(here, "docvqa_val") == before


def test_records_are_mapped_to_the_samples_of_our_own_dataset(tmp_path: Path) -> None:
    place = kits.lmms_eval(tmp_path / "logs")
    maps = [
        "id=doc.questionId",
        "document=doc.docId",
        "references=doc.answers",
        "meta.page=doc.docId",
    ]
    words = [word for one in maps for word in ("--map", one)]
    here = brought(tmp_path, place, "lmms-eval", "--dataset", "docvqa", "--metrics", "anls", *words)
    (one,) = here.resolved.run_tasks
    assert one.dataset.name == "docvqa"
    found = scores(here, "docvqa_val")
    assert found["sample"] == ["64000", "64001", "64002", "64003"]
    assert found["document"] == ["5000", "5000", "5001", "5001"]
    assert found["meta.page"] == ["5000", "5000", "5001", "5001"]


def test_ours_and_theirs_stand_side_by_side_under_their_own_names(tmp_path: Path) -> None:
    place = kits.lmms_eval(tmp_path / "logs")
    here = brought(tmp_path, place, "lmms-eval", "--metrics", "anls,exact_match")
    reported = metrics_of(here).to_json()["run_tasks"]["docvqa_val"]["metrics"]
    assert set(reported) == {"lmms-eval-anls", "anls", "exact_match"}
    assert reported["lmms-eval-anls"]["signature"] != reported["anls"]["signature"]
    assert reported["exact_match"]["value"] == 0.5


def test_two_imported_runs_are_compared_sample_by_sample(tmp_path: Path) -> None:
    one = brought(tmp_path, kits.lmms_eval(tmp_path / "one"), "lmms-eval", "--name", "a")
    two = brought(
        tmp_path, kits.lmms_eval(tmp_path / "two", "20251121_000000"), "lmms-eval", "--name", "b"
    )
    assert one.id != two.id
    (found,) = compare(one, two)
    assert found.metric == "anls"
    assert found.comparison.baseline == found.comparison.candidate == 0.6


def test_filters_of_lm_eval_are_metrics_of_their_own(tmp_path: Path) -> None:
    here = brought(tmp_path, kits.lm_eval(tmp_path / "out"), "lm-eval")
    found = scores(here, "gsm8k")
    assert found["exact_match-strict-match"] == [1, 0, 0]
    assert found["exact_match-flexible-extract"] == [1, 1, 1]
    assert found["answer"] == [
        "It is 1.",
        "It is 2.",
        "It is 3.",
    ]  # the raw answer, not the filtered one
    assert (here.manifest.imported or {})["kit_version"] == "0.4.13"


def test_a_spreadsheet_whose_first_row_is_read_leaves_no_file_open(tmp_path: Path) -> None:
    (table,) = kits.vlmevalkit(tmp_path / "outputs", "xlsx").rglob("*_OCRBench.xlsx")
    with closing(vlmevalkit._rows(table)) as rows:
        next(rows)
    assert table not in [file.resolve() for file in Path("/proc/self/fd").iterdir()]


@pytest.mark.parametrize("ending", ["tsv", "json", "xlsx"])
def test_predictions_of_vlmevalkit_are_scored_by_our_metrics(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = kits.vlmevalkit(tmp_path / "outputs", ending)
    here = brought(tmp_path, own.parent, "vlmevalkit", "--metrics", "anls")
    assert "vlmevalkit recorded no value for any sample" in capsys.readouterr().err
    (one,) = here.resolved.run_tasks
    assert (one.name, one.model.name) == ("OCRBench", "Qwen2-VL-2B-Instruct")
    found = scores(here, "OCRBench")
    assert found["sample"] == ["0", "1", "2", "3"]
    assert found["outcome"] == ["ok", "ok", "ok", "failed"]
    assert found["references"] == kits.TRUTH
    assert found["meta.category"][0] == "Doc-oriented VQA"
    assert found["anls"][:2] == [1, 1]
    origin: Any = here.manifest.imported
    (aggregate,) = origin["tasks"]["OCRBench"]["aggregates"].values()
    assert json.loads(aggregate)["Final Score"] == 2


def test_a_table_of_vlmevalkit_with_numbers_of_samples_gives_them(tmp_path: Path) -> None:
    own = kits.vlmevalkit(tmp_path / "outputs")
    judged = [{**row, "hit": n % 2, "log": "…"} for n, row in enumerate(kits.rows())]
    kits.spreadsheet(own / "Qwen2-VL-2B-Instruct_OCRBench_gpt-4o.xlsx", judged)
    here = brought(tmp_path, own, "vlmevalkit")
    assert scores(here, "OCRBench")["hit"] == [0, 1, 0, 1]


def test_a_pickle_is_refused(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "M" / "M_OCRBench.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps([1]))
    for place in (path, path.parent):
        assert "hpcbench does not read pickles" in cli.err("import", place, "--from", "vlmevalkit")
    assert not list(all_experiments(tmp_path / "home"))


def test_the_same_files_are_imported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = kits.lmms_eval(tmp_path / "logs")
    first = brought(tmp_path, place, "lmms-eval")
    assert brought(tmp_path, place, "lmms-eval").id == first.id
    assert "already imported" in capsys.readouterr().err
    assert len(list(all_experiments(tmp_path / "home"))) == 1
    brought(tmp_path, place, "lmms-eval", "--metrics", "anls")
    assert len(list(all_experiments(tmp_path / "home"))) == 2


def torn(path: Path) -> int:
    """Cut a file in the middle of its third line; the line's number."""
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:2]) + b"\n" + lines[2][:20])
    return 3


def test_a_torn_file_is_reported_by_its_line_and_nothing_is_left(tmp_path: Path, cli: Cli) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    (path,) = folder.glob("*.jsonl")
    line = torn(path)
    reported = cli.err("import", folder, "--from", "lmms-eval")
    assert f"{path}:{line}:" in reported
    assert "may be incomplete" in reported
    assert not list((tmp_path / "home" / "experiments").glob("*"))


def broken(tmp_path: Path, how: str) -> tuple[Path, str]:
    """Results with something wrong; the kit."""
    if how == "no samples":
        folder = kits.lmms_eval(tmp_path / "logs")
        for path in folder.glob("*.jsonl"):
            path.unlink()
        return folder, "lmms-eval"
    if how == "two runs":
        folder = kits.lmms_eval(tmp_path / "logs")
        (folder / "20251121_101500_results.json").write_text("{}")
        return folder, "lmms-eval"
    if how == "twice":
        folder = kits.lmms_eval(tmp_path / "logs")
        (path,) = folder.glob("*.jsonl")
        path.write_bytes(path.read_bytes() + path.read_bytes().split(b"\n")[0] + b"\n")
        return folder, "lmms-eval"
    if how == "no results":
        (tmp_path / "empty").mkdir()
        return tmp_path / "empty", "lm-eval"
    if how == "other json":
        path = tmp_path / "results_x.json"
        path.write_text('{\n "a": [1, 2\n}')
        return path, "lm-eval"
    table = [{**row} for row in kits.rows()]
    for row in table:
        del row["prediction"]
    return kits.vlmevalkit(tmp_path / "outputs", table=table), "vlmevalkit"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no samples", "--log_samples"),
        ("two runs", "name one of these files"),
        ("twice", ":5: sample '0' occurs twice, first in line 1"),
        ("no results", "the folder has no results_*.json"),
        ("other json", "results_x.json:3:1: not JSON"),
        ("no predictions", "no column 'prediction'"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_remedy(
    tmp_path: Path, cli: Cli, how: str, message: str
) -> None:
    place, kit = broken(tmp_path, how)
    reported = cli.err("import", place, "--from", kit, "--ml-task", "vqa")
    assert message in reported
    assert "Traceback" not in reported
    assert not list((tmp_path / "home").glob("experiments/*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--map", "ident=doc_id"], "FIELD is one of"),
        (["--map", "id=doc.nope"], "this sample has no doc.nope"),
        (["--task", "nope"], "no task 'nope' (there are: docvqa_val)"),
        (["--metrics", "anlss"], "anlss"),
        (["--ml-task", "vqaa"], "vqaa"),
    ],
)
def test_a_wrong_request_is_reported(
    tmp_path: Path, cli: Cli, words: list[str], message: str
) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    assert message in cli.err("import", folder, "--from", "lmms-eval", *words)
    assert not list((tmp_path / "home").glob("experiments/*"))


def test_a_dry_run_reads_everything_and_writes_nothing(tmp_path: Path, cli: Cli) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    reported = cli.json("import", folder, "--from", "lmms-eval", "--dry-run", "--json")
    assert reported["samples"] == {"docvqa_val": 4}
    assert reported["metrics"] == {"docvqa_val": ["anls"]}
    assert not (tmp_path / "home").exists()


def test_a_kit_that_adds_up_otherwise_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kits.lmms_eval(tmp_path / "logs")
    (path,) = folder.glob("*_results.json")
    path.write_text(path.read_text().replace('"anls,none": 0.6', '"anls,none": 61.5'))
    brought(tmp_path, folder, "lmms-eval")
    assert "anls is 61.5 as lmms-eval aggregates it, 0.6 as the mean" in capsys.readouterr().err
