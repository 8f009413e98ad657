"""A group's workers as arrays: how many, from where, how many at once; and what a dry run says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcbench.experiment.submission import Round, Step, arrays
from hpcbench.resume.last_job import DEFAULT
from hpcbench.schema.plan import Group
from tests.unit.command import Cli
from tests.unit.small import record, write_dataset

PLAN = """\
name: wide
executor: slurm
parallelism: 5
shard_size: 2
run_tasks:
  - {name: vqa, ml_task: vqa, model: tiny, dataset: pages, prompt: ask}
"""


def group(workers: int, throttle: int, name: str = "g0") -> Group:
    return Group(
        id=name,
        image=None,
        gpus=0,
        resources=DEFAULT,
        run_tasks=("rt",),
        workers=workers,
        throttle=throttle,
    )


def submitted(now: Round, step: Step, job: str) -> Round:
    return replace(now, steps={**now.steps, step.name: replace(step, job=job)})


def test_what_fits_one_array_is_one_with_all_that_its_group_may_have() -> None:
    (step,) = arrays([group(1000, 64)], 1001)
    assert (step.name, step.first, step.workers, step.throttle) == ("g0", 0, 1000, 0)


def test_what_is_too_large_is_cut_and_the_parts_share_what_the_group_may_have_at_once() -> None:
    found = arrays([group(2500, 100), group(3, 3, "g1")], 1000)
    reported = [(one.name, one.group, one.first, one.workers, one.throttle) for one in found]
    assert reported == [
        ("g0", "g0", 0, 1000, 40),
        ("g0+1", "g0", 1000, 1000, 40),
        ("g0+2", "g0", 2000, 500, 20),
        ("g1", "g1", 0, 3, 0),
    ]


@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 100))
@example(7, 2, 2)
@example(10, 5, 3)
def test_every_worker_is_in_one_array_and_no_more_work_at_once_than_may(
    workers: int, throttle: int, largest: int
) -> None:
    found = arrays([group(workers, min(throttle, workers))], largest)
    places = [place for one in found for place in range(one.first, one.first + one.workers)]
    assert places == list(range(workers))
    assert all(isinstance(one.throttle, int) for one in found)
    if len(found) > 1 and throttle < workers:
        assert all(one.throttle for one in found), "0 would be no limit"
    at_once = sum(min(one.workers, one.throttle or throttle) for one in found)
    assert len(found) == 1 or at_once <= max(throttle, len(found))


def test_after_a_refusal_an_array_takes_all_that_those_alive_leave() -> None:
    wide = group(100, 8)
    now = submitted(Round(0, 0.0, (wide,)), Step("g0", "g0", 0, 6), "7")
    now = replace(now, refused="MaxSubmitJobs")
    beside = now.next_array(wide, 50, alive={"7"})
    after = now.next_array(wide, 50, alive=())
    assert beside is not None
    assert (beside.name, beside.first, beside.workers, beside.throttle) == ("g0+1", 6, 50, 2)
    assert after is not None
    assert after.throttle == 8
    assert now.next_array(wide, 0) is None


def test_arrays_that_may_have_all_their_workers_at_once_have_nothing_to_share() -> None:
    found = arrays([group(7, 7)], 3)
    assert [(one.workers, one.throttle) for one in found] == [(3, 0), (3, 0), (1, 0)]


def test_a_round_knows_whether_its_arrays_share_workers() -> None:
    now = Round(0, 0.0, (group(2000, 4),))
    for step in arrays(now.groups, 3000):
        now = submitted(now, step, "7")
    assert not submitted(now, Step("finalise"), "8").several
    now = Round(0, 0.0, (group(2000, 4),))
    for step in arrays(now.groups, 1000):
        now = submitted(now, step, step.name)
    assert now.several
    assert Round(0, 0.0, (group(1, 1), group(1, 1, "g1"))).several


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan for Slurm whose five workers do not fit one array of two."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "pages", [record(number) for number in range(20)])
    (tmp_path / "weights").mkdir()
    for name, text in {
        "config/hpcbench/sites/default.yaml": "name: default\nslurm: {max_array_size: 2}\n",
        "registries/models/tiny.yaml": "name: tiny\nsource: ../../weights\nengine: vllm\n",
        "registries/datasets/pages.yaml": "name: pages\nsource: ../../pages\nannotations: a.jsonl\n"
        "fields: [question]\n",
        "registries/prompts/ask.yaml": 'name: ask\nuser: "{{ question }}"\n',
        "plan.yaml": PLAN,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "plan.yaml"


@pytest.mark.long
def test_a_dry_run_shows_every_array_that_would_be_submitted(cli: Cli, plan: Path) -> None:
    shown = cli("submit", plan, "--dry-run")
    reported: dict[str, Any] = cli.json("submit", plan, "--dry-run", "--json")
    assert "in 3 array jobs: Slurm takes at most 2 tasks in one" in shown
    lines = [line.strip() for line in shown.splitlines() if "--array" in line]
    assert lines == ["#SBATCH --array=0-1%2", "#SBATCH --array=0-1%2", "#SBATCH --array=0-0%1"]
    assert list(reported["sbatch"]) == ["g0", "g0+1", "g0+2"]
    assert "--job-name=hpcbench:ID:g0+2.0" in reported["sbatch"]["g0+2"]
