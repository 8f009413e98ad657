"""A real MLflow on SQLite: what was sent is read back with MLflow's own client."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.errors import EnvironmentFault
from hpcbench.notify.dispatch import tell
from hpcbench.schema.outputs import Tracker
from hpcbench.tracking.feed import SentCounts
from hpcbench.tracking.mlflow import MlflowTracker
from tests.help_examples import example
from tests.tracking.servers import Server
from tests.unit.tracked import answer, end, ended, started

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def client(mlflow: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    return MlflowClient(mlflow.url)


def tracker(server: Server, name: str, **more: Any) -> MlflowTracker:
    return MlflowTracker({"url": server.url, "experiment": name, "timeout": 120, **more})


def runs(client: Any, name: str) -> dict[str, Any]:
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    assert len({run.info.run_name for run in found}) == len(found), "a run is there twice"
    return {run.info.run_name: run for run in found}


def traces(client: Any, name: str, run: Any = None) -> list[Any]:
    place = client.get_experiment_by_name(name).experiment_id
    only = {"run_id": run.info.run_id} if run is not None else {}
    found = client.search_traces(locations=[place], max_results=500, include_spans=False, **only)
    return list(found)


def test_a_run_an_experiment_with_a_run_of_it_a_run_task(
    mlflow: Server, client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"url": mlflow.url, "timeout": 120}
    here = ended(tmp_path / "home", 10, trackers=[Tracker(plugin="mlflow", options=options)])
    here.report_dir.mkdir()
    (here.report_dir / "report.html").write_text("<p>fine</p>")
    tables = {"path": str(here.path), "id": here.id}
    assert tell(here, "done", tables) == [], "finalise tells the trackers of the plan"
    found = runs(client, "plan")
    parent, child = found[here.id], found["rt"]
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.tags["hpcbench.experiment"] == here.id
    assert parent.info.status == child.info.status == "FINISHED"
    reported = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]
    entry = reported["metrics"]["exact_match"]
    metrics = child.data.metrics
    assert metrics["exact_match"] == pytest.approx(entry["value"])
    assert metrics["exact_match.low"] == pytest.approx(entry["low"])
    assert metrics["exact_match.high"] == pytest.approx(entry["high"])
    assert (metrics["exact_match.n"], metrics["coverage"]) == (entry["n"], reported["coverage"])
    assert metrics["ttft_ms.p50"] > 0
    wanted = {"model": "m", "dataset": "d", "prompt": "p", "engine": "vllm", "seed": "7"}
    assert wanted.items() <= child.data.params.items()
    assert child.data.params["generation.temperature"] == "0.0"
    files = {one.path for one in client.list_artifacts(parent.info.run_id)}
    assert {"metrics.json", "manifest.json", "report"} <= files
    report = client.download_artifacts(parent.info.run_id, "report/report.html", str(tmp_path))
    assert Path(report).read_text() == "<p>fine</p>"
    assert [one.path for one in client.list_artifacts(child.info.run_id, "scores")] == [
        "scores/rt.parquet"
    ]
    (failed,) = [one for one in traces(client, "plan", child) if one.info.state.name == "ERROR"]
    assert failed.info.tags["hpcbench.sample"] == "s1"
    assert len(traces(client, "plan", child)) == 10
    good = client.get_trace(
        next(
            one.info.trace_id
            for one in traces(client, "plan", child)
            if one.info.tags["hpcbench.sample"] == "s4"
        )
    )
    (span,) = good.data.spans
    assert span.inputs == {"messages": [{"role": "user", "content": "number 4?"}]}
    assert span.outputs == "4"
    assert span.attributes["hpcbench.score.exact_match"] == 1.0
    assert main([*example("track @last", {"@last": here.path}), "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["trackers"]
    assert main(example("track @last --live", {"@last": here.path})) == 0
    assert (again["exchanges"], again["figures"], again["files"]) == (0, 0, 0)


def test_what_was_sent_and_not_noted_is_found_there_and_not_doubled(
    mlflow: Server, client: Any, tmp_path: Path
) -> None:
    here, there = ended(tmp_path / "home", 10), tracker(mlflow, "lost-notes")
    there.track(here.path)
    for notes in here.tracked_dir.glob("*.jsonl"):
        notes.unlink()
    there.track(here.path)
    found = runs(client, "lost-notes")
    assert set(found) == {here.id, "rt"}
    assert len(traces(client, "lost-notes")) == 10
    history = client.get_metric_history(found["rt"].info.run_id, "exact_match")
    assert len(history) == 1, "a figure that is there is not logged again"


def test_while_it_runs_answers_come_as_they_are_given(
    mlflow: Server, client: Any, tmp_path: Path
) -> None:
    here, there = started(tmp_path / "home", 12), tracker(mlflow, "live")
    answer(here, 0)
    seen: list[SentCounts] = []
    results: list[SentCounts] = []
    follower = threading.Thread(
        target=lambda: results.append(there.track(here.path, live=True, tell=seen.append))
    )
    follower.start()
    until(lambda: any(one.exchanges == 4 for one in seen))
    child = runs(client, "live")["rt"]
    assert child.info.status == "RUNNING"
    assert child.data.metrics["live.answered"] == 4
    answer(here, 1, 2)
    end(here)
    follower.join(600)
    assert results[0].state == "done"
    child = runs(client, "live")["rt"]
    assert child.info.status == "FINISHED"
    assert child.data.metrics["exact_match"] > 0
    assert len(traces(client, "live", child)) == 12


def test_a_server_that_is_killed_and_comes_back_has_everything_once(
    mlflow: Server, client: Any, tmp_path: Path
) -> None:
    here, there = ended(tmp_path / "home", 60, shard_size=5), tracker(mlflow, "killed")
    killed = threading.Event()

    def kill(sent: SentCounts) -> None:
        if sent.exchanges >= 10 and not killed.is_set():
            killed.set()
            mlflow.kill()

    try:
        with pytest.raises(EnvironmentFault, match="cannot be reached|MLflow"):
            there.track(here.path, tell=kill)
    finally:
        mlflow.kill()
        mlflow.start()
        mlflow.wait()
    assert killed.is_set()
    assert there.track(here.path).exchanges <= 60
    assert set(runs(client, "killed")) == {here.id, "rt"}
    found = traces(client, "killed", runs(client, "killed")["rt"])
    assert sorted(one.info.tags["hpcbench.sample"] for one in found) == sorted(
        f"s{number}" for number in range(60)
    )


def test_a_server_that_lost_all_is_sent_all_again(
    mlflow: Server, client: Any, tmp_path: Path
) -> None:
    here, there = ended(tmp_path / "home", 3), tracker(mlflow, "forgotten")
    there.track(here.path)
    for notes in here.tracked_dir.glob("*.jsonl"):
        lines = notes.read_text().replace(runs(client, "forgotten")[here.id].info.run_id, "0" * 32)
        notes.write_text(lines)  # as if the run had been of a server that is no more
    assert there.track(here.path).figures > 0


def until(holds: Callable[[], bool], seconds: float = 400.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.1)


def test_nothing_of_a_client_is_left_behind(mlflow: Server, tmp_path: Path) -> None:
    here = ended(tmp_path / "home", 3)
    tracker(mlflow, "left-behind").track(here.path)
    assert not [one for one in _processes() if "hpcbench.tracking.tracker_process" in one]


def _processes() -> list[str]:
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdigit() and int(one.name) != os.getpid():
            try:
                status, words = (one / "stat").read_text(), (one / "cmdline").read_bytes()
            except OSError:
                continue
            if f" {os.getpid()} " in status:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
