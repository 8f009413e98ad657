"""Ten thousand trajectories of eight turns on the cluster, while all workers are killed three times."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import kill
from tests.faults.payments import Ledger, exits, intents, turns, valid_trajectories
from tests.slurm.drill import Drill, Run

pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(3600)]

SAMPLES = int(os.environ.get("HPCBENCH_TRAJECTORIES", "10000"))
"""A smaller number shows whether the test works; tests/faults/test_agents.py has a case for `make test`."""

TURNS = 8

SUM, PAYMENT = ["calculator", {"expression": "TURN + 1"}], ["pay", {"bill": "QUESTION, turn TURN"}]
CALLS = [PAYMENT if turn in (2, 5) else SUM for turn in range(TURNS - 1)]

LARGER = 64 * 1024
"""KiB by which a worker may grow between the first and the last tenth of its turns, at most."""


def submitted(drill: Drill, ledger: Ledger) -> Run:
    page = {"images": ["page.png"], "references": ["x"]}
    with (drill.folder / "data" / "many.jsonl").open("w") as file:
        for number in range(SAMPLES):
            fields = {"question": f"question {number:05d}"}
            record = {**page, "id": f"s{number:05d}", "document": f"d{number}", "fields": fields}
            file.write(f"{json.dumps(record)}\n")
    drill.write("registry/datasets/many.yaml", {
        "name": "many", "source": "../../data", "annotations": "many.jsonl", "fields": ["question"],
    })  # fmt: skip
    drill.script(answer_ms=[0, 0], calls=CALLS)
    agent = {"tools": ["calculator", ledger.tool]}
    task = {"dataset": "many", "agent": agent, "concurrency": 64, "min_coverage": 0.9}
    return drill.submit(drill.plan(task, shard_size=max(4, SAMPLES // 40), max_resubmits=5))


class Watch:
    """Turns on the disk and memory of workers, seen from outside, cheaply."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.memory: dict[int, list[int]] = defaultdict(list)
        """Worker → its resident memory in KiB, again and again."""
        self._seen: dict[Path, tuple[int, int]] = {}

    def turns(self) -> int:
        """Turns on the disk, whole lines only; files only grow."""
        for path in self.run.path.glob("shards/numbers/*.turns.jsonl"):
            size, count = self._seen.get(path, (0, 0))
            with path.open("rb") as file:
                file.seek(size)
                new = file.read()
            new = new[: new.rfind(b"\n") + 1]
            self._seen[path] = size + len(new), count + new.count(b'"reply"')
        return sum(count for _, count in self._seen.values())

    def until(self, condition: Callable[[], bool], timeout: float = 2400) -> None:
        """Wait, and look at the workers meanwhile."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, self.run.story(None)
            for pid in self.run.workers():
                self.memory[pid].append(_memory(pid))
            self.run.release()
            time.sleep(1)


def test_killed_workers_lose_no_turn_and_pay_nothing_twice(drill: Drill) -> None:
    with Ledger(drill.folder).open() as ledger:
        run, began = submitted(drill, ledger), time.monotonic()
        watch, seen, killed = Watch(run), set[tuple[str, int]](), 0
        for share in (0.25, 0.5, 0.75):
            watch.until(lambda share=share: watch.turns() > share * SAMPLES * TURNS)
            for pid in run.workers():
                killed += kill(pid)
            seen |= turns(run)
        watch.until(lambda: (run.path / "outcome.json").exists() and not run.jobs())
        took, status = time.monotonic() - began, run.status()

        ends, made, final = exits(run), intents(run), turns(run)
        assert killed >= 3
        assert ends.total() == SAMPLES
        assert set(ends) <= {"answered", "tool_failed"}
        assert seen <= final, "a finished turn was lost"
        assert set(made.values()) == {1}
        assert set(ledger.paid.values()) == {1}, "a payment was made twice"
        assert ledger.paid.total() >= 2 * ends["answered"]
    assert valid_trajectories(run, drill.folder / "atif") == SAMPLES
    grown = max(
        max(one[-len(one) // 10 :]) - max(one[: len(one) // 10 + 1])
        for one in watch.memory.values()
    )
    assert grown < LARGER
    print(json.dumps({
        "trajectories": SAMPLES, "turns": len(final), "killed": killed, "seconds": round(took),
        "state": status["state"], "rounds": run.rounds, "exits": ends, "paid": ledger.paid.total(),
        "KiB": {pid: (one[0], max(one), one[-1]) for pid, one in watch.memory.items()}, "grown": grown,
    }), file=sys.stderr)  # fmt: skip


def _memory(pid: int) -> int:
    """Resident memory in KiB; 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
