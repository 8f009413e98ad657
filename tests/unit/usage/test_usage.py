"""Resources that an experiment took, by the files of its workers and Slurm's accounting."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench import slurm
from hpcbench.cli.main import main
from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view import readings
from hpcbench.experiment.view.usage import CAUSES, Hours, Spent, Usage, Waited
from hpcbench.files.atomic import Appender, write_json
from hpcbench.usage import gpu_hours as usage
from hpcbench.usage.gpu_hours import Allocation, account, look, totals, usage_of
from tests.unit.command import Cli
from tests.unit.past import past, takes, works
from tests.unit.reporting.test_report import shown, written
from tests.unit.small import run_task

ONE, TWO, AGAIN = ("7_0", 0), ("7_1", 0), ("7_0", 1)
LOADING: dict[str, Any] = {"model": "m"}
READY: dict[str, Any] = {"model": "m", "seconds": 100}


def seconds(row: Hours) -> dict[str, int]:
    """Parts of an hour in seconds, those there are."""
    names = ("allocated", "used", *CAUSES)
    return {name: round(getattr(row, name) * 3600) for name in names if getattr(row, name)}


def plain(root: Path, *tasks: Any) -> Experiment:
    """One worker that loads, answers two shards and ends."""
    here = past(root, "20261120-1432-plan-aaaa", *tasks)
    works(
        here,
        ONE,
        [
            (1000, "started"),
            (1010, "model_loading", LOADING),
            (1110, "model_ready", READY),
            (1320, "finished"),
        ],
    )
    takes(here, ONE, 0, 1110, 1210, range(10))
    takes(here, ONE, 1, 1210, 1310, range(10, 20))
    return here


def test_workers_alone_tell_what_was_used_and_what_was_not(tmp_path: Path) -> None:
    found = look(plain(tmp_path))
    (row,) = found.hours
    assert (row.run_task, row.model, row.unit) == ("rt", "m", "GPU")
    assert seconds(row) == {
        "allocated": 320, "used": 200, "loading": 100, "idle": 10, "after_last_answer": 10,
    }  # fmt: skip
    assert (found.source, found.jobs, found.waited, found.energy_wh) == ("workers", 1, None, None)
    assert found.month == "1970-01"


def test_an_event_without_the_fields_of_its_kind_changes_nothing(tmp_path: Path) -> None:
    """A damaged line may still be JSON."""
    here = plain(tmp_path)
    before = look(here)
    kinds = ("model_loading", "model_ready", "model_failed", "engine_died", "budget", "bad_node")
    [(path, records)] = here.worker_records()
    lines = [*records]
    with Appender(path) as log:
        path.write_text("")
        for line in [*lines[:2], *({"event": kind} for kind in kinds), *lines[2:]]:
            log.write(line)
    assert look(here) == before


def test_hours_of_an_engine_on_two_nodes_are_those_of_all_its_gpus(tmp_path: Path) -> None:
    task = run_task(model={"gpus": 4, "nodes": 2, "parallel": {"tensor": 8}})
    (row,) = look(plain(tmp_path, task)).hours
    assert (row.unit, round(row.allocated * 3600)) == ("GPU", 8 * 320)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({"prices": {"input": 1, "output": 2}}, "1,104 requests, 98,000 tokens, 2.31 USD"),
        ({}, "1,104 requests, 98,000 tokens"),
    ],
)
def test_requests_of_all_workers_are_counted_with_what_they_took(
    tmp_path: Path, prices: dict[str, Any], said: str
) -> None:
    here = plain(tmp_path, run_task(model=prices))
    assert look(here).spent is None, "its worker is of an earlier version"
    early = {"spent": {"requests": 3, "tokens": 90, "cost": 0.01}}
    last = {"spent": {"requests": 1000, "tokens": 97_910, "cost": 2.25}}
    works(here, TWO, [(1000, "started"), (1005, "budget", early), (1010, "budget", last)])
    ended = {"spent": {"requests": 104, "tokens": 90, "cost": 0.06}}
    works(here, AGAIN, [(1400, "started"), (1405, "budget", ended), (1406, "finished")])
    spent = look(here).spent
    assert spent is not None
    assert spent.in_words == said


def test_without_gpus_hours_are_of_cpus(tmp_path: Path) -> None:
    task = run_task(model={"gpus": 0}, resources={"cpus": 4})
    (row,) = look(plain(tmp_path, task)).hours
    assert (row.unit, round(row.allocated * 3600)) == ("CPU", 4 * 320)


def test_a_killed_worker_used_the_time_of_its_acknowledged_answers_and_lost_the_rest(
    tmp_path: Path,
) -> None:
    here = past(tmp_path, "x", samples=10)
    works(here, ONE, [(0, "started"), (90, "progress")])
    takes(here, ONE, 0, 0, None, range(4))  # each answer took 1.1 ms by its own stamps
    works(here, AGAIN, [(200, "started"), (230, "finished")])
    takes(here, AGAIN, 0, 200, 230, range(4, 10), attempt=2, before=4)
    (row,) = look(here).hours
    assert seconds(row) == {"allocated": 120, "used": 30, "lost": 90}


def test_answers_given_twice_are_lost_work_of_the_later_attempt(tmp_path: Path) -> None:
    here = past(tmp_path, "x", samples=10)
    works(here, ONE, [(0, "started"), (100, "finished")])
    takes(here, ONE, 0, 0, 100, range(10), ended="drained")
    works(here, TWO, [(0, "started"), (80, "finished")])
    takes(here, TWO, 0, 0, 80, range(6, 14), attempt=2)
    (row,) = look(here).hours
    assert seconds(row) == {"allocated": 180, "used": 140, "lost": 40}


def test_a_load_that_fails_or_is_cut_off_is_a_failed_one(tmp_path: Path) -> None:
    here = past(tmp_path, "x")
    works(
        here,
        ONE,
        [
            (0, "started"),
            (0, "model_loading", LOADING),
            (50, "model_failed", LOADING),
            (50, "model_loading", LOADING),
            (70, "stopped"),
        ],
    )
    works(here, TWO, [(0, "started"), (0, "model_loading", LOADING), (40, "loading")])
    (row,) = look(here).hours
    assert seconds(row) == {"allocated": 110, "failed_loads": 110}


def test_slurms_accounting_adds_what_workers_cannot_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plain(tmp_path)
    submitted(here, 700.0)
    alone = Allocation("7_0", 970, 1370, gpus=1, cpus=2, submitted=700, joules=36000)
    monkeypatch.setattr(usage, "_allocations", lambda *_: [alone])
    found = look(here)
    assert seconds(found.hours[0]) == {
        "allocated": 400, "used": 200, "starting": 30, "loading": 100, "idle": 10,
        "after_last_answer": 60,
    }  # fmt: skip
    assert found.source == "slurm"
    assert found.waited is not None
    assert found.waited.first == 270
    assert (found.energy_wh, found.energy_source) == (10, "slurm")


def accounted(monkeypatch: pytest.MonkeyPatch, *runs: slurm.Job) -> None:
    """Have Slurm's accounting say this, whatever it is asked."""
    monkeypatch.setattr(usage.slurm, "accounting", lambda _: list(runs))


def on_slurm(root: Path) -> Experiment:
    """An experiment whose array is job 7; its only worker ended at second 110."""
    here = past(root, "x", plan={"executor": "slurm"})
    submitted(here, 0.0)
    works(here, ONE, [(10, "started"), (110, "finished")])
    return here


def held(job: str, state: str, end: float | None, **more: Any) -> slurm.Job:
    tres = "cpu=3,gres/gpu=2"
    reported: dict[str, Any] = {"submitted": 0.0, "start": 5.0, "tres": tres, "gpus": 2, **more}
    return slurm.Job(job, "hpcbench:x:g0.0", state, end=end, **reported)


def test_runs_in_accounting_are_allocations_and_jobs_that_never_ran_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = on_slurm(tmp_path)
    accounted(
        monkeypatch,
        held("7_0", "COMPLETED", 125.0),
        held("7_1", "CANCELLED", 5.0),
        held("7_2", "PENDING", None, start=None),
        held("9_0", "COMPLETED", 500.0),  # another user's or an older job of the same name
    )
    found = look(here)
    assert (found.jobs, found.complete, found.source) == (1, True, "slurm")
    assert seconds(found.hours[0]) == {"allocated": 240, "starting": 10, "idle": 230}


def test_where_accounting_is_late_the_workers_last_word_ends_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = on_slurm(tmp_path)
    accounted(monkeypatch, held("7_0", "RUNNING", None))
    found = look(here)
    assert seconds(found.hours[0])["allocated"] == 210
    assert found.complete


def test_what_was_counted_while_a_job_ran_is_counted_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = on_slurm(tmp_path)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")  # the worker itself reports
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    accounted(monkeypatch, held("7_0", "RUNNING", None))
    assert not account(here).complete
    accounted(monkeypatch, held("7_0", "COMPLETED", 125.0))
    assert seconds(usage_of(here).hours[0])["allocated"] == 240
    accounted(monkeypatch)  # accounting has forgotten it
    assert seconds(usage_of(here).hours[0])["allocated"] == 240


def test_each_run_of_a_requeued_job_is_matched_with_its_own_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = past(tmp_path, "x", samples=10)
    submitted(here, 0.0)
    works(here, ("7_0", 2), [(310, "started"), (390, "finished")])
    takes(here, ("7_0", 2), 0, 310, 390, range(10))
    three = [Allocation("7_0", begin, begin + 100, 2, 1, begin - 5) for begin in (0, 150, 300)]
    monkeypatch.setattr(usage, "_allocations", lambda *_: three)
    (row,) = look(here).hours
    assert seconds(row) == {
        "allocated": 600, "used": 160, "starting": 420, "after_last_answer": 20
    }  # fmt: skip


def test_workers_of_one_job_share_its_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = past(tmp_path, "x", run_task(model={"replicas_per_node": 2}), samples=20)
    submitted(here, 0.0)
    other = ("7_0.1", 0)
    for worker, shard, end in ((ONE, 0, 1210), (other, 1, 1160)):
        works(here, worker, [(1010, "started"), (end, "finished")])
        takes(here, worker, shard, 1110, end, range(10 * shard, 10 * shard + 10))
    (row,) = look(here).hours
    assert seconds(row)["allocated"] == 200 + 150, "each worker has one GPU"
    monkeypatch.setattr(
        usage, "_allocations", lambda *_: [Allocation("7_0", 1000, 1220, 2, 1, 900)]
    )
    found = look(here)
    assert found.jobs == 1 and found.waited == Waited(first=100, median=100, longest=100)
    assert seconds(found.hours[0]) == {
        "allocated": 440, "used": 150, "starting": 20, "idle": 200, "after_last_answer": 70
    }  # fmt: skip


def test_a_worker_that_slurm_forgot_is_counted_as_it_says_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plain(tmp_path)
    submitted(here, 0.0)
    works(here, TWO, [(1000, "started"), (1100, "finished")])
    monkeypatch.setattr(usage, "_allocations", lambda *_: [Allocation("7_0", 1000, 1320, 1, 1)])
    found = look(here)
    assert found.jobs == 2
    assert seconds(found.hours[0])["allocated"] == 420


def submitted(here: Experiment, at: float) -> None:
    """A round whose array is job 7."""
    groups = [asdict(group) for group in here.work.groups]
    with Appender(here.submission_file) as log:
        log.write({"event": "round", "round": 0, "time": at, "groups": groups})
        log.write({"event": "intent", "step": "g0", "group": "g0", "time": at})
        log.write({"event": "submitted", "step": "g0", "job": "7", "time": at})


def test_the_monitors_readings_tell_utilisation_and_power(tmp_path: Path) -> None:
    here = plain(tmp_path)
    with Appender(here.worker_monitor("g0", "7_0-0")) as file:
        for at in range(0, 3601, 10):
            phase, percent = ("loading m", 10) if at < 1200 else ("rt", 80)
            file.write(
                {"time": at, "phase": phase, "gpus": [{"gpu": 0, "utilisation": percent, "watts": 300.0}]}
            )  # fmt: skip
    found = look(here)
    assert found.gpu_utilisation == {"rt": 80.0}
    assert (found.energy_wh, found.energy_source) == (300.0, "gpus")


def test_of_a_long_monitors_file_parts_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "BLOCK_BYTES", 400)
    here = plain(tmp_path)
    with Appender(here.worker_monitor("g0", "7_0-0")) as file:
        for at in range(7200):
            gpu = {"gpu": 0, "utilisation": 50 + at % 2, "watts": 100.0}
            file.write({"time": at, "phase": "rt", "gpus": [gpu]})
    found = look(here)
    assert 50 <= found.gpu_utilisation["rt"] <= 51
    assert found.energy_wh == pytest.approx(200, rel=0.01)


def test_what_was_written_at_the_end_is_what_is_read_later(tmp_path: Path) -> None:
    here = plain(tmp_path)
    written = account(here)
    for path in sorted(here.workers_dir.glob("*.events.jsonl")):
        path.unlink()
    assert usage_of(here) == written
    assert json.loads(here.usage_file.read_text())["version"] == 1


def test_parts_still_add_up_after_rounding(tmp_path: Path) -> None:
    for row in look(plain(tmp_path)).hours:
        assert row.allocated == pytest.approx(row.used + row.wasted, abs=1e-9)


def test_hours_are_added_up_by_model_experiment_and_month() -> None:
    def used(name: str, month: str, *rows: Hours) -> Usage:
        return Usage(
            experiment=name, month=month, source="slurm", jobs=1, hours=rows, waited=None,
            energy_wh=None, gpu_utilisation={},
        )  # fmt: skip

    def row(task: str, model: str, allocated: float) -> Hours:
        return Hours(run_task=task, model=model, allocated=allocated, used=allocated / 2)

    known = [
        used("e1", "2026-10", row("a", "m", 1), row("b", "n", 2)),
        used("e2", "2026-11", row("a", "m", 4)),
    ]
    assert {key: one.allocated for key, one in totals(known, "model").items()} == {
        ("m", "GPU"): 5, ("n", "GPU"): 2,
    }  # fmt: skip
    assert [one.allocated for one in totals(known, "experiment").values()] == [3, 4]
    assert [key[0] for key in totals(known, "month")] == ["2026-10", "2026-11"]
    assert totals(known, "run_task")["a", "GPU"].used == 2.5


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two experiments, one of them ended and accounted for."""
    account(plain(tmp_path))
    other = past(tmp_path, "20261121-1432-plan-bbbb", run_task(model={"gpus": 4}))
    works(other, ONE, [(0, "started"), (3600, "finished")])
    return tmp_path


@pytest.mark.usefixtures("home")
def test_the_command_shows_one_experiment_by_run_task(cli: Cli) -> None:
    data = cli.json("usage", "20261120", "--json")
    (row,) = data["hours"]
    assert (row["run_task"], row["unit"]) == ("rt", "GPU")
    assert row["allocated"] == pytest.approx(320 / 3600, abs=1e-5)
    assert row["wasted"] == pytest.approx(120 / 3600, abs=1e-5)
    printed = cli("usage", "20261120")
    assert "0.056 (62 %)" in printed
    assert "source: workers' records" in printed


@pytest.mark.usefixtures("home")
def test_the_command_adds_up_all_experiments(cli: Cli) -> None:
    (row,) = cli.json("usage", "--all", "--by", "month", "--json")["hours"]
    assert row["allocated"] == pytest.approx(4 + 320 / 3600, abs=1e-5)
    assert "20261121-1432-plan-bbbb" in cli("usage", "--all")
    assert main(["usage", "--all", "@last"]) == 2


def test_the_command_adds_up_what_was_sent_by_currency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    free = Spent(requests=1000, tokens=5)
    usd = Spent(requests=10, tokens=20, cost=0.5, currency="USD")
    eur = Spent(requests=7, tokens=20, cost=2.5, currency="EUR")
    for name, spent in zip("abcde", (free, usd, eur, usd, None), strict=True):
        here = past(tmp_path, f"20261120-1432-plan-aaa{name}")
        found = Usage(experiment=here.id, hours=(Hours(run_task="rt"),), spent=spent)
        write_json(here.usage_file, found.model_dump(mode="json"))
    printed = cli("usage", "--all").splitlines()
    assert [one for one in printed if one.startswith("sent")] == [
        "sent: 1,000 requests, 5 tokens",
        "sent: 7 requests, 20 tokens, 2.5 EUR",
        "sent: 20 requests, 40 tokens, 1 USD",
    ]


@pytest.mark.long
def test_the_report_shows_what_it_took_in_both_forms(tmp_path: Path) -> None:
    here = written(tmp_path, {"s0": "0", "s1": "1"})
    assert "Resources" not in shown(here).read_text()
    row = Hours(run_task="rt", model="<m>", allocated=2, used=1.5, loading=0.5)
    reported = Usage(
        experiment=here.id, month="2026-11", source="slurm", jobs=2, hours=(row,),
        waited=Waited(first=10, median=20, longest=30), energy_wh=1500, energy_source="slurm",
        gpu_utilisation={"rt": 80.0}, spent=Spent(requests=1204, tokens=98000, cost=2.31, currency="EUR"),
    )  # fmt: skip
    write_json(here.usage_file, reported.model_dump(mode="json"))
    markdown = shown(here).read_text()
    assert "| rt | &lt;m> | GPU-hours | 2.000 | 1.500 | 75 % | – | 0.500 |" in markdown
    assert "Jobs waited 20 s in the queue (median), at most 30 s." in markdown
    assert "Sent: 1,204 requests, 98,000 tokens, 2.31 EUR, warm-up" in markdown
    html = (here.report_dir / "report.html").read_text()
    assert ">Resources</h2>" in html
    assert "&lt;m&gt;" in html
    assert "1.5 kWh" in html


def test_what_was_folded_is_counted_the_same(tmp_path: Path) -> None:
    here = plain(tmp_path)
    before = look(here)
    assert fold(here, "rt")
    assert fold_workers(here, all_ended=True)
    assert not sorted(here.workers_dir.glob("*.events.jsonl"))
    assert look(here) == before
