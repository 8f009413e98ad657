"""`hpcbench load`: points from the command line, through the way that every submission takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from tests.unit.command import Cli
from tests.unit.small import plan_without_weights

PLAN = """\
name: speed
executor: local
parallelism: 4
run_tasks:
  - {name: vqa, ml_task: vqa, model: tiny, dataset: pages, prompt: ask}
  - {name: short, ml_task: vqa, model: tiny, dataset: pages, prompt: ask, limit: 20}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan over 100 samples whose model is an empty folder: a dry run looks no further."""
    return plan_without_weights(tmp_path, monkeypatch, PLAN)


def planned(cli: Cli, plan: Path, *arguments: str) -> dict[str, Any]:
    """Steps of a dry run of `hpcbench load`."""
    found: dict[str, Any] = cli.json("load", plan, "--dry-run", "--json", *arguments)
    return found


def refused(cli: Cli, plan: Path, *arguments: str) -> str:
    return cli.err("load", plan, "--dry-run", *arguments)


def test_every_point_is_one_shard_and_one_worker_takes_them_all(cli: Cli, plan: Path) -> None:
    found = planned(
        cli, plan, "--concurrency", "1,8", "--rate", "2.5", "--requests", "16", "--run-task", "vqa"
    )  # fmt: skip
    assert found["samples"] == {"vqa-c1": 16, "vqa-c8": 16, "vqa-r2.5": 16}
    assert [(cut["samples"], cut["size"]) for cut in found["work"]["cuts"]] == [(16, 16)] * 3
    (group,) = found["work"]["groups"]
    assert (group["workers"], group["throttle"]) == (1, 1)


def test_a_plan_without_points_gets_those_that_its_fewest_samples_bear(
    cli: Cli, plan: Path
) -> None:
    both = planned(cli, plan)["samples"]
    assert [name for name in both if name.startswith("vqa")] == ["vqa-c1", "vqa-c2", "vqa-c4"]
    alone = planned(cli, plan, "--run-task", "vqa")["samples"]
    assert list(alone) == [f"vqa-c{count}" for count in (1, 2, 4, 8, 16)]
    few = planned(cli, plan, "--run-task", "vqa", "--requests", "9")["samples"]
    assert few == {"vqa-c1": 9, "vqa-c2": 9}


def test_a_plan_with_a_sweep_of_its_own_keeps_it(cli: Cli, plan: Path) -> None:
    plan.write_text(PLAN + "load: {rate: [0.5], requests: 10}\n")
    assert planned(cli, plan)["samples"] == {"vqa-r0.5": 10, "short-r0.5": 10}
    assert planned(cli, plan, "--requests", "9")["samples"] == {"vqa-r0.5": 9, "short-r0.5": 9}
    other = planned(cli, plan, "--concurrency", "2")["samples"]
    assert other == {"vqa-c2": 10, "short-c2": 10}


def test_what_is_set_by_hand_wins_over_what_the_verb_lays_over_the_plan(
    cli: Cli, plan: Path
) -> None:
    found = planned(
        cli, plan, "--concurrency", "1,2", "--set", "parallelism=2", "--set", "load.requests=7"
    )
    assert set(found["samples"].values()) == {7}
    assert found["work"]["groups"][0]["workers"] == 2


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--concurrency", "1,x"], "--concurrency: '1,x' is not a list of numbers"),
        (["--slo", "ttft=fast"], "--slo: 'ttft=fast' is not a limit"),
        (["--slo", "speed=5"], "--slo: 'speed=5' is not a limit"),
        (["--concurrency", "0"], "must be greater than 0"),
        (["--concurrency", "64"],
         "sweep of 'short': 20 samples are too few for 64 requests in flight"),
        (["--rate", "1", "--requests", "50"],
         "sweep of 'short': 50 requests per point are more than"),
        (["--run-task", "vqaa"], "unknown run task 'vqaa' of this plan (did you mean 'vqa'?)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_reported_in_a_line(
    cli: Cli, plan: Path, arguments: list[str], reported: str
) -> None:
    assert reported in refused(cli, plan, *arguments)


def test_a_submission_finds_every_option_that_it_looks_at() -> None:
    ours, submits = (vars(parser().parse_args([verb, "plan.yaml"])) for verb in ("load", "submit"))
    assert submits.keys() - ours.keys() == {"elsewhere"}


def test_limits_reach_every_point(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcbench.cli import load as module

    handed: list[list[str]] = []
    monkeypatch.setattr(module, "submit", lambda arguments: handed.append(arguments.settings) or 0)
    assert main(["load", str(plan), "--rate", "1", "--slo", "ttft=500,e2e=9000"]) == 0
    assert handed == [
        [
            "parallelism=1", "load.concurrency=null", "load.rate=[1.0]",
            'load.slo={"ttft_ms": 500.0, "e2e_ms": 9000.0}',
        ]
    ]  # fmt: skip
