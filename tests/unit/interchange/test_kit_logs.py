"""Our experiments in other kits' logs. Inspect's own reader opens them in tests/packages."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.files.atomic import read_json, write_json
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """Five samples: two right, one wrong, one failed, one never asked."""
    records = [record(n, metadata={"doc_type": "чек"}) for n in range(5)]
    here = experiment(tmp_path, records, shard_size=3)
    manifest = {**read_json(here.manifest_file), "created": "2026-11-20T14:32:00+0300"}
    write_json(here.manifest_file, manifest)
    vars(here).pop("manifest", None)
    answers = [response("s0", "0"), response("s1", "half \ud83d"), response("s2", None)]
    write_attempt(here, 0, 1, answers)
    write_attempt(here, 1, 1, [response("s3", "3")], "failed")
    stage.evaluate(here)
    return here


def written(tmp_path: Path, form: str) -> list[Path]:
    """Files that the verb writes."""
    out = tmp_path / "logs"
    assert main(["export", "--format", form, "--out", str(out)]) == 0
    assert not [path for path in out.rglob(".*")]
    return sorted(path for path in out.rglob("*") if path.is_file())


def test_lmms_evals_viewer_finds_results_and_samples_of_one_date(
    here: Experiment, tmp_path: Path
) -> None:
    results, samples = written(tmp_path, "lmms-eval")
    assert results.name == "20261120_143200_results.json"
    assert samples.name == "20261120_143200_samples_rt.jsonl"
    reported = json.loads(results.read_text())
    entry: Any = metrics_of(here).to_json()["run_tasks"]["rt"]["metrics"]["exact_match"]
    assert reported["results"]["rt"]["exact_match,none"] == entry["value"]
    assert reported["n-samples"]["rt"] == {"original": 5, "effective": 5}
    assert (reported["model_name"], reported["date"]) == ("m", "20261120_143200")
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    assert [line["doc_id"] for line in lines] == list(range(5))
    assert [line["filtered_resps"] for line in lines] == [["0"], ["half \\ud83d"], [""], ["3"], []]
    assert [line["target"] for line in lines] == [str(n) for n in range(5)]
    assert lines[0]["input"] == "number 0?"
    assert [line.get("exact_match") for line in lines] == [1, 0, 0, 1, 0]
    assert [line["outcome"] for line in lines][2:] == ["failed", "ok", "missing"]


def test_what_goes_out_as_lmms_eval_comes_back_the_same(here: Experiment, tmp_path: Path) -> None:
    (results, _) = written(tmp_path, "lmms-eval")
    words = ["--map", "id=sample_id", "--metrics", "exact_match", "--name", "back"]
    assert main(["import", str(results), "--from", "lmms-eval", *words]) == 0
    (back,) = [one for one in all_experiments(tmp_path) if one.id != here.id]
    ours = metrics_of(here).to_json()["run_tasks"]["rt"]["metrics"]["exact_match"]
    theirs = metrics_of(back).to_json()["run_tasks"]["rt"]["metrics"]
    assert theirs["exact_match"]["signature"] == ours["signature"]
    assert theirs["lmms-eval-exact_match"]["value"] == ours["value"]


def test_inspects_log_has_every_sample_that_was_asked(here: Experiment, tmp_path: Path) -> None:
    (path,) = written(tmp_path, "inspect-json")
    assert path.name.startswith("2026-11-20T14-32-00+03-00_rt_")
    log = json.loads(path.read_text(encoding="utf-8"))
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "vllm/m")
    assert [one["id"] for one in log["samples"]] == ["s0", "s1", "s2", "s3"]
    first, _, failed, _ = log["samples"]
    content = first["input"][0]["content"]
    assert content[0]["type"] == "image"
    assert content[1]["text"] == "number 0?"
    assert first["scores"]["exact_match"] == {"value": 1, "answer": "0", "explanation": None}
    assert first["metadata"]["doc_type"] == "чек"
    assert first["output"]["usage"]["output_tokens"] == 1
    assert (failed["output"]["choices"], failed["error"]["message"]) == ([], "the engine hung up")
    (scored,) = log["results"]["scores"]
    assert set(scored["metrics"]) == {"value", "low", "high"}


def test_the_zip_holds_what_the_json_holds(here: Experiment, tmp_path: Path) -> None:
    (path,) = written(tmp_path, "inspect")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        header = json.loads(archive.read("header.json"))
        samples = [json.loads(archive.read(name)) for name in names if name.startswith("samples/")]
        summaries = json.loads(archive.read("summaries.json"))
    path.unlink()
    (path,) = written(tmp_path, "inspect-json")
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert samples == whole.pop("samples")
    assert header == whole
    assert [one["id"] for one in summaries] == [one["id"] for one in samples]
    assert {"header.json", "summaries.json", "_journal/start.json"} < set(names)


def test_one_run_task_can_be_chosen_and_a_wrong_name_is_reported(
    here: Experiment, tmp_path: Path, cli: Cli
) -> None:
    out = str(tmp_path / "logs")
    said = cli.err("export", "--format", "inspect", "--out", out, "--run-task", "rtt")
    assert "did you mean 'rt'" in said
