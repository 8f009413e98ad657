"""On a login node no engine starts before a user has said where a plan is to run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.command import Cli
from tests.unit.small import plan_without_weights

PLAN = "name: first\nrun_tasks: [{name: one, ml_task: vqa, model: tiny, dataset: pages, prompt: ask}]\n"
UP = "echo PartitionName=main State=UP"
DOWN = "echo 'scontrol: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
NO_CLUSTER = "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return plan_without_weights(tmp_path, monkeypatch, PLAN)


def slurm_says(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a scontrol with this answer, and an sbatch, before those of this machine."""
    for name in ("scontrol", "sbatch"):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("answer", [UP, DOWN])
def test_without_a_choice_a_login_node_starts_no_engine(
    answer: str, plan: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    slurm_says(answer, plan.parent, monkeypatch)
    for verb in (["--dry-run"], []):
        said = cli.err("submit", plan, *verb)
        assert f"{plan}: this machine submits to a Slurm cluster" in said
        assert "`hpcbench init`" in said
    assert not (plan.parent / "home/experiments").exists()


@pytest.mark.parametrize("way", ["option", "job", "profile", "no cluster"])
def test_a_choice_or_a_machine_without_a_cluster_starts_it(
    way: str, plan: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    slurm_says(NO_CLUSTER if way == "no cluster" else UP, plan.parent, monkeypatch)
    options = ["--set", "executor=local"] if way == "option" else []
    if way == "job":
        monkeypatch.setenv("SLURM_JOB_ID", "1")
    if way == "profile":
        sites = plan.parent / "config/hpcbench/sites"
        sites.mkdir(parents=True)
        (sites / "default.yaml").write_text("name: default\nexecutor: local\n")
    assert "executor local" in cli("submit", plan, "--dry-run", *options)
