"""Models served by jobs of their own: what a job leaves behind, its states, and what ends it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import RunFailed, UserError
from hpcbench.experiment.process_identity import identity
from hpcbench.schema.model import Model
from hpcbench.schema.site import Site
from hpcbench.slurm import shared_answer
from hpcbench.submit import serve_job
from hpcbench.submit.serve_job import ServeJob, folder_of, serve_jobs
from hpcbench.wrapper.served_models import Announcement, served_models
from tests.unit.slurm.fake_slurm import Fake, fake_slurm

MODEL = Model(name="big", engine="vllm", source="/w", gpus=2, size_gb=16)
SLURM: dict[str, Any] = {"name": "default", "executor": "slurm", "setup": ["echo from the site"]}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A Slurm that gives every job the id 77."""
    monkeypatch.setattr(shared_answer, "private_folder", lambda: None)
    made = fake_slurm(tmp_path / "bin", monkeypatch)
    made.says("sbatch", "77;cluster\n")
    return made


def started(home: Path, time_limit: str = "00:30:00") -> ServeJob:
    site = Site.model_validate(SLURM)
    return serve_job.start(home, site, MODEL, ["big", "--restarts", "3"], time_limit)


def state(home: Path, job: ServeJob) -> tuple[str, str]:
    return serve_job.states(home, [job])[job.id]


def announced(home: Path, job: ServeJob) -> Announcement:
    made = Announcement(home, "key", job.id)
    made.made(2e9, model=job.model, engine=job.engine, socket="/s", address="")
    return made


def test_a_job_of_slurm_has_a_script_of_the_site_and_files_of_the_user_alone(
    fake: Fake, tmp_path: Path
) -> None:
    job = started(tmp_path)
    assert (job.job, job.model, job.time_limit, job.process) == ("77", "big", 1800, None)
    assert serve_jobs(tmp_path) == [job]
    folder = folder_of(tmp_path, job.id)
    assert fake.calls("sbatch") == [f"--parsable {folder / 'job.sh'}"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    text = (folder / "job.sh").read_text()
    options = [line[10:] for line in text.splitlines() if line.startswith("#SBATCH --")]
    for wanted in (
        f"job-name={job.name}", "time=30", "gres=gpu:2", "signal=B:TERM@30", "cpus-per-task=4",
        "mem=23449M",
    ):  # fmt: skip
        assert wanted in options
    assert not any("requeue" in one or "array" in one for one in options)
    assert "echo from the site" in text
    last = text.strip().splitlines()[-1]
    assert last.startswith(f"exec env HPCBENCH_HOME={tmp_path} {sys.executable}")
    assert last.endswith(f"serve big --restarts 3 --as-job {job.id} --time-limit 00:30:00")


def test_a_job_that_slurm_refuses_leaves_nothing(fake: Fake, tmp_path: Path) -> None:
    fake.fails("sbatch", "sbatch: error: invalid partition specified: none")
    with pytest.raises(Exception, match="invalid partition"):
        started(tmp_path)
    assert list((tmp_path / "serving").iterdir()) == []


def test_a_job_of_slurm_waits_starts_serves_and_is_ended(fake: Fake, tmp_path: Path) -> None:
    job = started(tmp_path)
    fake.job("77", job.name, "PENDING", Reason="Resources", tres="cpu=4", **{"tres-alloc": ""})
    word, why = state(tmp_path, job)
    assert word == "waiting"
    assert "partition gpu" in why
    fake.jobs.clear()
    fake.job("77", job.name, "RUNNING", NodeList="gpu07")
    later = ServeJob(**{**vars_of(job), "submitted": time.time() + 1})
    assert state(tmp_path, later)[0] == "starting"
    announced(tmp_path, job)
    assert state(tmp_path, job) == ("ready", "")
    serve_job.stop(tmp_path, job)
    assert fake.calls("scancel") == ["--quiet 77"]
    assert served_models(tmp_path) == []
    assert list((tmp_path / "serving").iterdir()) == []


def vars_of(job: ServeJob) -> dict[str, Any]:
    return {name: getattr(job, name) for name in ServeJob.__slots__}


def test_a_job_that_is_gone_has_failed_but_not_while_slurm_is_silent(
    fake: Fake, tmp_path: Path
) -> None:
    job = started(tmp_path)
    fake.fails("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    word, why = state(tmp_path, job)
    assert word == "waiting"
    assert "contact slurm" in why
    fake.works("squeue")
    fake.says("squeue", "")
    later = ServeJob(**{**vars_of(job), "submitted": time.time()})
    assert state(tmp_path, later) == ("failed", "Slurm has no such job any more")


def test_a_job_whose_id_was_never_read_is_ended_by_its_name(fake: Fake, tmp_path: Path) -> None:
    job = ServeJob(**{**vars_of(started(tmp_path)), "job": ""})
    fake.job("78", job.name)
    serve_job.stop(tmp_path, job)
    assert fake.calls("scancel") == ["--quiet 78"]


def by_process(home: Path, pid: int, submitted: float = 1e10) -> ServeJob:
    job = ServeJob("abc", "big", "vllm", 60, submitted, process=identity(pid))
    folder_of(home, job.id).mkdir(parents=True)
    serve_job._write(folder_of(home, job.id), job)
    return job


def test_a_process_is_known_by_its_identity_and_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        job = by_process(tmp_path, process.pid)
        assert state(tmp_path, job) == ("starting", "")
        (folder_of(tmp_path, job.id) / "host.out").write_text("one\n\nloading\n")
        assert serve_job.tail(tmp_path, job.id) == ("one", "loading")
        (found,) = serve_job.find(tmp_path, "big")
        serve_job.stop(tmp_path, found)
        assert process.wait(10) < 0
    assert state(tmp_path, job)[0] == "failed"
    with pytest.raises(UserError, match="no job serves 'big'"):
        serve_job.find(tmp_path, "big")


def test_a_job_keeps_the_reason_of_a_bad_end_and_nothing_of_a_good_one(tmp_path: Path) -> None:
    job = by_process(tmp_path, os.getpid())
    with pytest.raises(RunFailed), serve_job.ending(tmp_path, job.id):
        raise RunFailed("the engine died 4 times")
    assert state(tmp_path, job) == ("failed", "the engine died 4 times")
    with serve_job.ending(tmp_path, job.id):
        pass
    assert serve_jobs(tmp_path) == []


def test_folders_of_jobs_that_failed_long_ago_go_with_the_next_start(
    fake: Fake, tmp_path: Path
) -> None:
    fake.says("squeue", "")
    old = by_process(tmp_path, 2**22 - 1, submitted=time.time() - 2 * serve_job.FORGET_SECONDS)
    job = started(tmp_path)
    assert old.id != job.id
    assert serve_jobs(tmp_path) == [job]
