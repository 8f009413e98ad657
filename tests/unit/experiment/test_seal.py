"""Colleagues who may write to an experiment cannot run code in its submitter's name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.environments.packages import Probe, packages_for
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import is_foreign, others_write
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.seal import check_seal, seal, seal_if_new
from tests.unit.small import experiment, record

COLLEAGUE = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    """The umask of a site that shares experiments."""
    before = os.umask(0o007)
    yield
    os.umask(before)


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """A shared experiment, ready to be submitted."""
    found = experiment(tmp_path / "home", [record("1")])
    found.path.chmod(0o770)
    found.jobs_dir.mkdir(exist_ok=True, mode=0o750)
    found.jobs_dir.chmod(0o750)
    found.manifest_file.write_text('{"environments": {}}')
    seal(found)
    return Experiment(found.path)


def test_what_was_not_touched_runs(here: Experiment) -> None:
    check_seal(here)
    assert not others_write(here.seal_file)


@pytest.mark.parametrize("name", ["resolved.json", "manifest.json"])
def test_a_file_that_names_code_is_as_it_was_submitted(here: Experiment, name: str) -> None:
    path = here.path / name
    path.rename(path.with_suffix(".old"))
    path.write_text(path.with_suffix(".old").read_text() + " ")
    with pytest.raises(EnvironmentFault, match=f"{name} of .* changed after its submission"):
        check_seal(here)


def test_a_kill_before_the_seal_leaves_no_experiment_without_one(here: Experiment) -> None:
    here.seal_file.unlink()
    seal_if_new(here)
    assert here.seal_file.exists()
    here.seal_file.unlink()
    here.jobs_dir.chmod(0o770)  # as an older hpcbench made it
    seal_if_new(here)
    check_seal(here)


def test_jobs_that_others_may_write_are_not_executed(here: Experiment) -> None:
    here.jobs_dir.chmod(0o770)
    with pytest.raises(EnvironmentFault, match="other users can change"):
        check_seal(here)


@needs_root
def test_a_folder_of_jobs_that_a_colleague_put_in_its_place_is_not_executed(
    here: Experiment,
) -> None:
    here.jobs_dir.rename(here.path / "old")
    here.jobs_dir.mkdir(mode=0o750)
    os.chown(here.jobs_dir, COLLEAGUE, -1)
    with pytest.raises(EnvironmentFault, match="other users can change"):
        check_seal(here)
    job = [sys.executable, "-m", "hpcbench.submit.job_start", "-u", "-m", "submitit.core._submit"]
    done = subprocess.run([*job, str(here.jobs_dir)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert f"belongs to user {COLLEAGUE}" in done.stderr


@needs_root
def test_an_experiment_that_only_its_submitter_writes_is_not_examined(here: Experiment) -> None:
    os.chown(here.jobs_dir, COLLEAGUE, -1)
    here.path.chmod(0o750)
    check_seal(here)


@needs_root
@pytest.mark.long
def test_packages_of_a_colleague_are_not_imported(tmp_path: Path) -> None:
    """The Python has all that the wrapper needs: only hpcbench itself is put beside it."""
    needs = dict.fromkeys(
        ("aiohttp", "httptools", "prometheus-client", "pydantic", "uvicorn"), "99"
    )
    probed = Probe("3.9.0", "2.36", "x86_64", "", needs)
    first = packages_for(probed, tmp_path)
    assert not any(others_write(path) for path in (first, *first.rglob("*")))
    assert packages_for(probed, tmp_path) == first
    os.chown(first, COLLEAGUE, -1)
    assert is_foreign(first)
    own = packages_for(probed, tmp_path)
    assert own != first
    assert (own / "hpcbench").is_dir()
