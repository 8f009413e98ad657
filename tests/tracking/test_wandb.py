"""W&B offline: what its client wrote is read back with W&B's own records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.tracking.feed import SentCounts
from hpcbench.tracking.wandb import WandbTracker
from tests.tracking.servers import closed_port
from tests.unit.tracked import answer, end, ended, started

pytestmark = pytest.mark.timeout(1200)

BLOCK = 32768


def records(path: Path) -> Iterator[Any]:
    """Records of a `.wandb` file: LevelDB's log format after 7 bytes, each record a protobuf of W&B's."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, last
            found = wandb_internal_pb2.Record()
            found.ParseFromString(whole)
            whole = b""
            yield found


def logs(here: Experiment) -> list[Path]:
    """Its offline runs, oldest first."""
    return sorted(here.tracked_dir.glob("wandb/offline-run-*/*.wandb"))


def values(updates: Any) -> dict[str, Any]:
    return {one.key: json.loads(one.value_json) for one in updates if one.key}


@pytest.fixture
def offline() -> WandbTracker:
    return WandbTracker({"mode": "offline", "project": "documents", "timeout": 120})


def test_a_run_a_run_task_in_the_group_of_its_experiment(
    offline: WandbTracker, tmp_path: Path
) -> None:
    here = ended(tmp_path / "home", 10)
    sent = offline.track(here.path)
    assert (sent.exchanges, sent.state) == (10, "done")
    (log,) = logs(here)
    found = list(records(log))
    run = next(one.run for one in found if one.HasField("run"))
    assert (run.project, run.run_group, run.display_name) == ("documents", here.id, "rt")
    assert run.run_id == f"{here.id}-rt"
    config = values(run.config.update)
    assert {"model": "m", "dataset": "d", "engine": "vllm"}.items() <= config.items()
    summary: dict[str, Any] = {}
    for one in found:
        if one.HasField("summary"):
            summary |= values(one.summary.update)
    reported = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["metrics"][
        "exact_match"
    ]
    assert summary["exact_match"] == pytest.approx(reported["value"])
    assert summary["exact_match.low"] == pytest.approx(reported["low"])
    assert summary["state"] == "done"
    artifacts = {one.artifact.type: one.artifact for one in found if one.HasField("artifact")}
    files = {entry.path for entry in artifacts["hpcbench"].manifest.contents}
    assert {"metrics.json", "manifest.json", "scores/rt.parquet"} <= files
    (table,) = log.parent.rglob("*.table.json")
    rows = json.loads(table.read_text())
    assert rows["columns"][:5] == ["sample", "document", "outcome", "prompt", "response"]
    assert rows["data"][4][:5] == ["s4", "doc4", "ok", "user: number 4?", "4"]
    assert (len(rows["data"]), rows["data"][4][-1]) == (10, 1.0)


def test_a_second_sending_writes_nothing(offline: WandbTracker, tmp_path: Path) -> None:
    here = ended(tmp_path / "home", 3)
    offline.track(here.path)
    assert offline.track(here.path) == SentCounts(state="done")
    assert len(logs(here)) == 1


def test_what_changed_goes_into_the_same_run(offline: WandbTracker, tmp_path: Path) -> None:
    here = started(tmp_path / "home", 8)
    answer(here, 0)
    assert offline.track(here.path).state is None
    (first,) = logs(here)
    history = [one.history for one in records(first) if one.HasField("history")]
    steps = [
        {"/".join(item.nested_key) or item.key: item.value_json for item in one.item}
        for one in history
    ]
    assert float(steps[0]["live.answered"]) == 4
    answer(here, 1)
    end(here)
    assert offline.track(here.path).exchanges == 8
    ids = {one.run.run_id for log in logs(here) for one in records(log) if one.HasField("run")}
    assert (len(logs(here)), ids) == (2, {f"{here.id}-rt"})


def test_a_server_that_is_not_there_is_reported_in_a_line(tmp_path: Path) -> None:
    here = ended(tmp_path / "home", 3)
    url = f"http://127.0.0.1:{closed_port()}"
    online = WandbTracker({"url": url, "api_key": "x" * 40, "timeout": 5})
    with pytest.raises(EnvironmentFault, match="cannot be reached") as reported:
        online.track(here.path)
    assert "x" * 10 not in str(reported.value)
