"""The submission of a round by sbatch, its answers and its refusals, with a FAKE Slurm on PATH.

The same with a real one is in tests/slurm.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files.atomic import read_json, read_lines
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from hpcbench.submit import rounds as rounds_module
from hpcbench.submit.array_task import ArrayTask
from hpcbench.submit.rounds import begin_round, cancel, hand_over, submit_first, submit_last_job
from tests.unit.past import past
from tests.unit.slurm.fake_slurm import Fake
from tests.unit.small import resolved, run_task

NUMBERED = """#!/bin/sh
# A fake sbatch: each job has the next number, from 4711 on.
printf '%s\\n' "$*" >> {folder}/sbatch.calls
read last < {folder}/sbatch.last
echo $((last + 1)) > {folder}/sbatch.last
echo "Submitted batch job $((last + 1))"
"""


@pytest.fixture
def slurm(fake: Fake) -> Fake:
    """A fake whose sbatch takes every job."""
    (fake.folder / "sbatch").write_text(NUMBERED.format(folder=fake.folder))
    (fake.folder / "sbatch.last").write_text("4710\n")
    (fake.folder / "srun").symlink_to("/bin/true")  # submitit looks for it
    return fake


def experiment(folder: Path, *, workers: int = 2, gpus: int = 0, **site: Any) -> Experiment:
    """An experiment of one group, before its first round."""
    profile = Site.model_validate({"name": "default", "slurm": site})
    plan = resolved(run_task(model={"gpus": gpus}), shard_size=10, executor="slurm")
    here = past(folder, "20261120-1432-plan-aaaa", ended=False, plan={"executor": "slurm"})
    here.resolved_file.write_text(plan.model_copy(update={"site": profile}).model_dump_json())
    (group,) = here.work.groups
    more = {"workers": workers, "throttle": workers, "gpus": gpus}
    manifest = read_json(here.manifest_file)
    work = replace(here.work, groups=(replace(group, **more),))
    here.manifest_file.write_text(json.dumps({**manifest, "work": asdict(work)}))
    return Experiment(here.path)


def script(here: Experiment, job: str) -> str:
    return (here.jobs_dir / f"{job}_submission.sh").read_text()


def carried(here: Experiment, job: str) -> tuple[str, ...]:
    """Arguments of what a job calls."""
    submission = pickle.loads((here.jobs_dir / f"{job}_submitted.pkl").read_bytes())
    assert isinstance(submission.function, ArrayTask)
    return (submission.function.module, *submission.function.arguments[1:])


def said(here: Experiment, kind: str) -> list[Mapping[str, Any]]:
    return [line for line in read_lines(here.submission_file) if line["event"] == kind]


def test_an_array_of_workers_and_the_last_job_that_waits_for_it(
    tmp_path: Path, slurm: Fake
) -> None:
    here = experiment(tmp_path)
    begin_round(here, here.work.groups, excluded=["n1", "n2"])
    assert rounds(here)[-1].jobs == {"g0": "4711", "finalise": "4712"}
    assert [carried(here, f"4711_{place}") for place in (0, 1)] == [
        ("hpcbench.worker", "g0", "0", "0/2"),
        ("hpcbench.worker", "g0", "0", "1/2"),
    ]
    assert carried(here, "4712") == ("hpcbench.finalise",)
    array, last = script(here, "4711"), script(here, "4712")
    assert "--array=0-1%2\n" in array and "--exclude=n1,n2\n" in array
    assert f"--job-name=hpcbench:{here.id}:g0.0\n" in array and "--dependency" not in array
    assert "--dependency=afterany:4711\n" in last and "--array" not in last
    assert "--nodes=1\n" in last and "--cpus-per-task=1\n" in last and "--gres" not in last


def test_a_second_call_of_a_submission_submits_nothing(tmp_path: Path, slurm: Fake) -> None:
    here = experiment(tmp_path)
    here.jobs_dir.mkdir(mode=0o700)  # as preparation leaves it
    slurm.job("4712", name=f"hpcbench:{here.id}:finalise.0", state="PENDING")
    for _ in range(2):
        submit_first(here)
        assert rounds(here)[-1].jobs == {"g0": "4711", "finalise": "4712"}
    assert len(slurm.calls("sbatch")) == 2


def test_workers_beyond_the_largest_array_are_further_arrays(tmp_path: Path, slurm: Fake) -> None:
    here = experiment(tmp_path, workers=5, max_array_size=3)
    begin_round(here, here.work.groups)
    assert rounds(here)[-1].jobs == {"g0": "4711", "g0+1": "4712", "finalise": "4713"}
    places = [carried(here, job)[3] for job in ("4711_2", "4712_0", "4712_1")]
    assert places == ["2/5", "3/5", "4/5"]
    assert "--dependency=afterany:4711:4712\n" in script(here, "4713")


@pytest.mark.parametrize(("partition", "asked"), [({}, True), ({"cpu_partition": "cpus"}, False)])
@pytest.mark.parametrize("groups", [0, 1])
def test_the_last_job_asks_for_a_gpu_only_where_all_nodes_have_some(
    tmp_path: Path, slurm: Fake, partition: Mapping[str, Any], asked: bool, groups: int
) -> None:
    here = experiment(tmp_path, gpus=2, **partition)
    begin_round(here, here.work.groups[:groups])
    last = script(here, rounds(here)[-1].jobs["finalise"])
    assert [line for line in last.splitlines() if "gres" in line] == (
        ["#SBATCH --gres=gpu:1"] if asked else []
    )


@pytest.mark.parametrize(("python", "there"), [(("python3.10",), True), (("python", "-P"), False)])
def test_a_python_that_imports_from_the_current_folder_starts_in_the_experiments(
    tmp_path: Path, slurm: Fake, monkeypatch: pytest.MonkeyPatch, python: tuple[str], there: bool
) -> None:
    monkeypatch.setattr(rounds_module, "interpreter", lambda experiment: python)
    here = experiment(tmp_path)
    begin_round(here, here.work.groups)
    assert (f"--chdir={here.path}\n" in script(here, "4711")) is there


def test_a_refusal_for_good_is_the_users_with_slurms_own_line(tmp_path: Path, slurm: Fake) -> None:
    (slurm.folder / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: lua says no' >&2\necho 'sbatch: error: Batch job submission "
        "failed: Invalid account' >&2\necho '  see https://cluster' >&2\nexit 1\n"
    )
    here = experiment(tmp_path)
    with pytest.raises(
        EnvironmentFault, match="sbatch refused g0: .*Invalid account \\(check part"
    ):
        begin_round(here, here.work.groups)
    assert list(here.jobs_dir.glob("*.pkl")) == []


def test_a_refusal_without_the_word_error_is_its_last_line(tmp_path: Path, slurm: Fake) -> None:
    (slurm.folder / "sbatch").write_text(
        "#!/bin/sh\nprintf 'one\\ntwo\\nno jobs today\\n' >&2\nexit 1\n"
    )
    here = experiment(tmp_path)
    with pytest.raises(EnvironmentFault, match="sbatch refused g0: no jobs today \\("):
        begin_round(here, here.work.groups)


def test_a_limit_lets_workers_wait_and_leaves_no_pickle_of_the_refused(
    tmp_path: Path, slurm: Fake
) -> None:
    (slurm.folder / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
        "(job submit limit, user'\"'\"'s size and/or time limits)' >&2\nexit 1\n"
    )
    here = experiment(tmp_path)
    begin_round(here, here.work.groups)
    assert [line["step"] for line in said(here, "refused")] == ["g0", "g0"]
    assert rounds(here)[-1].deferred == 2
    assert list(here.jobs_dir.glob("*.pkl")) == []


def test_a_job_that_slurm_took_before_it_fell_silent_is_found_by_its_name(
    tmp_path: Path, slurm: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = experiment(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    slurm.says("sbatch", "Submitted batch job 9\n")
    (slurm.folder / "sbatch").write_text(
        f"#!/bin/sh\necho call >> {slurm.folder}/sbatch.calls\nif [ -f {slurm.folder}/silent ]; then\n"
        f'  while read line; do echo "$line" >&2; done < {slurm.folder}/silent\n  exit 1\nfi\n'
    )
    (slurm.folder / "silent").write_text(
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
        "failure)\n"
    )
    slurm.job("70", name=f"hpcbench:{here.id}:another.0", state="PENDING")
    slurm.job("71_0", name=f"hpcbench:{here.id}:g0.0", state="PENDING")
    slurm.job("72", name=f"hpcbench:{here.id}:finalise.0", state="PENDING")
    begin_round(here, here.work.groups)
    assert rounds(here)[-1].jobs == {"g0": "71", "finalise": "72"}
    assert len(slurm.calls("sbatch")) == 2
    assert carried(here, "71_1") == ("hpcbench.worker", "g0", "0", "1/2")


@pytest.mark.parametrize("known", ["squeue", "sacct", "nobody"])
def test_a_submission_that_was_killed_after_sbatch_goes_on_and_submits_nothing_twice(
    tmp_path: Path, slurm: Fake, known: str
) -> None:
    here = experiment(tmp_path, workers=4)
    with EventLog(here.submission_file) as log:
        listed = [asdict(group) for group in here.work.groups]
        log.write("round", round=0, groups=listed)
        log.write("intent", step="g0", group="g0", workers=2)
        log.write("submitted", step="g0", job="15")
        log.write("intent", step="g0+1", group="g0", first=2, workers=2)
    name = f"hpcbench:{here.id}:g0+1.0"
    slurm.job("15_1", name=f"hpcbench:{here.id}:g0.0")
    if known == "squeue":
        slurm.job("16_0", name=name)
    elif known == "sacct":
        slurm.run("16_0", name=name, state="RUNNING")
    hand_over(here)
    now = rounds(here)[-1]
    if known == "nobody":
        assert now.jobs == {"g0": "15", "g0+1": "4711", "finalise": "4712"}
        assert [line["step"] for line in said(here, "dropped")] == ["g0+1"]
        assert "--dependency=afterany:15:4711\n" in script(here, "4712")
        return
    assert now.jobs == {"g0": "15", "g0+1": "16", "finalise": "4711"}
    assert [carried(here, f"16_{place}")[3] for place in (0, 1)] == ["2/4", "3/4"]
    waits = "15:16" if known == "squeue" else "15"
    assert f"--dependency=afterany:{waits}\n" in script(here, "4711")


def test_a_round_whose_arrays_all_ended_before_its_last_job_was_submitted_gets_that_job(
    tmp_path: Path, slurm: Fake
) -> None:
    here = experiment(tmp_path)
    with EventLog(here.submission_file) as log:
        listed = [asdict(group) for group in here.work.groups]
        log.write("round", round=0, groups=listed)
        log.write("intent", step="g0", group="g0", workers=2)
        log.write("submitted", step="g0", job="15")
    hand_over(here)
    assert rounds(here)[-1].jobs == {"g0": "15", "finalise": "4711"}
    assert "--dependency" not in script(here, "4711")


def test_a_further_last_job_is_submitted_only_when_no_job_lives(
    tmp_path: Path, slurm: Fake
) -> None:
    here = experiment(tmp_path)
    begin_round(here, here.work.groups)
    slurm.job("4711_0", name=f"hpcbench:{here.id}:g0.0")
    larger = JobResources(cpus=1, memory_gb=8, time_limit="01:00:00")
    submit_last_job(here, larger, "its memory")
    assert rounds(here)[-1].finalisers == ["4712"]
    slurm.forget()
    submit_last_job(here, larger, "its memory")
    (_, again) = rounds(here)[-1].last_steps
    assert (again.name, again.job, again.died) == ("finalise+1", "4713", "its memory")
    assert "--mem=8192M\n" in script(here, "4713")
    assert carried(here, "4713") == ("hpcbench.finalise",)


def test_living_arrays_get_a_last_job_where_theirs_has_ended(tmp_path: Path, slurm: Fake) -> None:
    here = experiment(tmp_path)
    begin_round(here, here.work.groups)
    slurm.job("4711_0", name=f"hpcbench:{here.id}:g0.0")
    from hpcbench.status.liveness import living

    hand_over(here, living(here))
    assert rounds(here)[-1].finalisers == ["4712", "4713"]
    assert "--dependency=afterany:4711\n" in script(here, "4713")


def test_an_experiment_that_is_cancelled_ends_its_jobs_and_no_others(
    tmp_path: Path, slurm: Fake
) -> None:
    here = experiment(tmp_path)
    begin_round(here, here.work.groups)
    for job in ("4711_0", "4711_1", "4799"):
        slurm.job(job, name=f"hpcbench:{here.id}:g0.0")
    assert cancel(here) == 1
    assert slurm.calls("scancel") == ["--quiet 4711"]
