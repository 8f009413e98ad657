"""A worker's message when the monitor rings: with the engine's last lines where they may tell why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import Owner
from hpcbench.monitor.alarms import Alarm
from hpcbench.worker.process import Worker
from tests.unit.small import experiment, record


def rung(folder: Path, alarm: Alarm) -> dict[str, Any]:
    """The event of an alarm in a worker whose engine has said something."""
    here = experiment(folder, [record(0)])
    (group,) = here.work.groups
    worker = Worker(here, group, Owner.here())
    worker.owner = worker.events.open()
    log = here.worker_log(group.id, worker.owner.id)
    log.write_text("".join(f"line {number}\n" for number in range(60)) + "\n")
    worker._job_watch(folder).alarm(alarm)
    worker.events.close("finished")
    [(_, events)] = here.worker_records()
    (found,) = (event for event in events if event["event"] == "alarm")
    return found


@pytest.mark.parametrize(
    "kind", ["out_of_memory", "memory_near_limit", "disk_nearly_full", "engine_gone"]
)
def test_what_may_be_the_engines_doing_comes_with_its_last_lines(tmp_path: Path, kind: Any) -> None:
    found = rung(tmp_path, Alarm(kind, "it is so"))
    assert (found["kind"], found["message"]) == (kind, "it is so")
    assert found["tail"] == [f"line {number}" for number in range(50, 60)]


def test_what_is_the_cards_comes_without(tmp_path: Path) -> None:
    assert "tail" not in rung(tmp_path, Alarm("throttled", "it is hot"))
