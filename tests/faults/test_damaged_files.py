"""Damage to every kind of file of a stopped experiment, and a disk that is full."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.campaign import first
from tests.faults.conftest import Bench, Trial, until, whole

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

KINDS = {
    "events of shards": "shards/*/*.events.jsonl",
    "responses": "shards/*/*.responses.jsonl",
    "submission": "submission.jsonl",
    "control": "control/*.json",
    "events of workers": "workers/*.events.jsonl",
    "monitor": "workers/*.monitor.jsonl",
    "lock": "submission.lock",
}
"""Kinds of files that an experiment appends to, or creates, while it runs."""


@pytest.fixture
def stopped(bench: Bench) -> Trial:
    """An experiment that was paused, resumed and killed half-way, so that it has every kind of file."""
    bench.script(answer_ms=[200, 300])
    trial = bench.submit(bench.plan({}, parallelism=2))
    until(lambda: trial.answered() > 12, "answers")
    # The command takes seconds on a busy machine: until it has ended, no worker may end in order.
    bench.script(answer_ms=[60_000, 60_000])
    bench.run("pause", trial.id)
    trial.kill_all()
    (trial.path / "submission.lock").write_text("")
    return trial


@pytest.mark.parametrize("how", first(1, ["garbage", "torn"]))
def test_torn_and_damaged_files_of_every_kind_cost_no_answer_that_can_still_be_read(
    stopped: Trial, calm: Trial, how: str
) -> None:
    before = stopped.answers()
    for kind, pattern in KINDS.items():
        paths = sorted(stopped.path.glob(pattern))
        assert paths, kind
        for path in paths:
            with path.open("ab") as file:
                # A whole line of nonsense, or half a line that a kill left behind.
                file.write(b'\x00\xff{"event": 7}\n[1]\n' if how == "garbage" else b'{"event":"do')
    # No process can tell whose lock it is: it is left alone for ten minutes, then cleared.
    os.utime(stopped.path / "submission.lock", (0, 0))

    status = stopped.status()

    assert status["state"] in ("paused", "lost"), status
    assert status["answered"] >= len(before) - 2
    assert stopped.screen()
    stopped.bench.script(answer_ms=[1, 3])
    stopped.resume()
    stopped.wait("done")
    whole(stopped, calm, [before])
    assert "exact_match" in stopped.bench.run("report", stopped.id)[0]
    stopped.bench.run("events", stopped.id, "--json")
    stopped.bench.run("usage", stopped.id)


def test_missing_metrics_an_unreadable_outcome_and_a_damaged_answer_are_reported_and_mended(
    bench: Bench, calm: Trial
) -> None:
    trial = bench.submit(bench.plan({}))
    trial.wait("done")
    (trial.path / "metrics.json").unlink()
    assert trial.status()["state"] == "done"
    _, err = bench.run("report", trial.id, code=None)
    assert "has no scores" in err
    for content in (None, b"", b'{"version":1,"rou', b"[]\n"):
        if content is None:
            (trial.path / "outcome.json").unlink()
        else:
            (trial.path / "outcome.json").write_bytes(content)

        assert trial.status()["state"] == "lost", content

    bench.run("list")
    damaged = 0
    for path in sorted(trial.path.glob("shards/numbers/*")):
        data = path.read_bytes()
        if path.suffix in (".jsonl",) and b'"sample_id"' in data:
            at = data.index(b'"sample_id"')
            path.write_bytes(data[:at] + b"\x00" * 11 + data[at + 11 :])
            damaged += 1
    assert damaged, sorted(trial.path.glob("shards/numbers/*"))

    trial.status()
    out, err = bench.run("resume", trial.id)
    status = trial.wait("done", "incomplete", "failed")

    reported = out + err + json.dumps(status["failures"] + status["alarms"])
    assert "damaged" in reported or "cannot be read" in reported, reported
    whole(trial, calm)


@pytest.fixture
def small_disk(bench: Bench) -> Iterator[Bench]:
    """Experiments on a file system of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    experiments = bench.home / "experiments"
    experiments.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(experiments)]
    subprocess.run(mount, check=True)
    yield bench
    for path in experiments.glob("2*"):
        Trial(bench, path).kill_all()
    subprocess.run(["umount", "-l", str(experiments)], check=True)


@pytest.mark.campaign  # on the cluster: tests/slurm/test_reliability.py
def test_a_full_disk_is_reported_and_room_and_resume_cure_it(
    small_disk: Bench, calm: Trial
) -> None:
    bench = small_disk
    bench.script(answer_ms=[200, 300])
    trial = bench.submit(bench.plan({}, max_resubmits=0))
    until(lambda: trial.answered() > 4, "answers")
    before = trial.answers()
    filler = bench.home / "experiments" / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)

    until(lambda: not trial.workers() and not trial.pids("hpcbench.submit.local"), "its end")

    status = trial.status()
    assert "disk full" in json.dumps(status["failures"] + status["alarms"])
    assert "disk full" in trial.screen()
    filler.unlink()
    bench.script(answer_ms=[1, 3])
    if trial.status()["state"] != "done":
        trial.resume()
    trial.wait("done")
    whole(trial, calm, [before])


def test_submit_to_a_full_disk_says_so_in_one_line(small_disk: Bench) -> None:
    bench = small_disk
    filler = bench.home / "experiments" / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    out, err = bench.run(
        "submit", bench.plan({}), "--registry", bench.folder / "registry", code=None
    )
    assert "No space left" in out + err or "full" in out + err
    filler.unlink()
    bench.submit(bench.plan({})).wait("done")
