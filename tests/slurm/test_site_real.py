"""A site profile on a real cluster: what `init` sees there, what of it reaches a job and its files."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.campaign import first
from tests.help_examples import example
from tests.slurm.drill import Drill
from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

TEAM = "hpcbench-team"
ODD = 'it\'s $HOME, `id` \\ "é"\t*'

VQA = {
    "name": "vqa",
    "ml_task": "vqa",
    "model": "tiny-vlm",
    "dataset": "demo_vqa",
    "split": "easy",
    "prompt": "demo_vqa",
}

PROBE = '''\
"""What a job of the profile sees, written as a worker writes."""
import json, os, sys
from pathlib import Path
from hpcbench.files.atomic import Appender, create_exclusive, write_atomic

def look(folder):
    folder = Path(folder)
    create_exclusive(folder / "shards" / "claim.jsonl", {"event": "claimed"})
    with Appender(folder / "shards" / "answers.jsonl") as file:
        file.write({"text": "x"})
    write_atomic(folder / "seen.json", json.dumps(dict(os.environ)))
'''

SUBMIT = '''\
"""Submits the probe as hpcbench submits a worker."""
import sys
from pathlib import Path
import submitit
from probe import look
from hpcbench.experiment.access import ensure_folder, new_folder, use_umask
from hpcbench.submit.sbatch import clean_environment, parameters, prefixed, python
from hpcbench.registry.catalog import user_site
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.schema.work import JobResources

site, folder = user_site(), Path(sys.argv[1])
use_umask(site)
ensure_folder(folder.parent, site)
new_folder(folder, site)
need = JobResources(cpus=1, memory_gb=1, time_limit="00:05:00")
group = Group(id="g7", image=None, gpus=1, resources=need, run_tasks=(), workers=1, throttle=1)
plan = ResolvedPlan(plan=ExperimentPlan(name="probe"), site=site, run_tasks=())
options = parameters(plan, need, 1, "hpcbench:probe", group=group)
with clean_environment():
    executor = submitit.AutoExecutor(folder / "jobs", cluster="slurm", slurm_python=python())
    executor.update_parameters(**prefixed(options))
    print(executor.submit(look, str(folder)).job_id)
'''


@pytest.fixture
def team(user: User) -> Iterator[str]:
    """A Unix group beside the user's own."""
    subprocess.run(["groupadd", "--force", TEAM], check=True)
    subprocess.run(["gpasswd", "--add", "hpcuser", TEAM], check=True, capture_output=True)
    yield TEAM
    subprocess.run(["groupdel", TEAM], check=False)


def profile_of(user: User, **fields: Any) -> Path:
    """The profile that `init` writes, with fields laid over it."""
    user.ok(*example("init"), "--force")
    path = user.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(path.read_text())
    data["slurm"].update(fields.pop("slurm", {}))
    path.write_text(yaml.safe_dump({**data, **fields}, allow_unicode=True))
    return path


def probed(user: User) -> Path:
    """A folder in which a job of the profile has left what it saw."""
    for name, text in (("probe.py", PROBE), ("submit_probe.py", SUBMIT)):
        (user.folder / name).write_text(text)
    folder = user.home / "experiments" / "probe"
    done = user.lab.run_as_user(
        [user.python, user.folder / "submit_probe.py", folder], env=user.environment
    )
    assert done.returncode == 0, done.stderr
    try:
        until((folder / "seen.json").exists, 150, f"job {done.stdout.strip()} to have run")
    except AssertionError as error:
        logs = [path.read_text() for path in folder.glob("jobs/*_log.out")]
        raise AssertionError("\n".join([str(error), *logs])) from None
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_init_sees_the_cluster_and_doctor_agrees(user: User) -> None:
    site = yaml.safe_load(profile_of(user).read_text())
    slurm = site["slurm"]
    assert (slurm["partition"], slurm["account"], slurm["gpu_gres"]) == ("main", "docs", "gpu:fake")
    assert slurm["max_array_size"] == 1001
    found = {check["name"]: check for check in user.json("doctor")}
    assert found["worker job"]["detail"] == "Slurm accepts it, with a GPU"
    assert found["last job"]["state"] == "ok"


@pytest.mark.parametrize(
    ("slurm", "reported"),
    first(2, [
        ({"account": "nobodys"}, "Invalid account"),
        ({"gpu_gres": "gpu:h100"}, "Requested node configuration is not available"),
        ({"constraint": "h100"}, "Invalid feature specification"),
        ({"reservation": "gone"}, "Requested reservation"),
    ]),
)  # fmt: skip
def test_doctor_says_in_slurms_words_what_it_would_not_take(
    user: User, slurm: dict[str, str], reported: str
) -> None:
    profile_of(user, slurm=slurm)
    done = user.hpcbench("doctor", "--json")
    assert done.returncode == 3
    (worker,) = [one for one in json.loads(done.stdout) if one["name"] == "worker job"]
    assert reported in worker["detail"]


@pytest.mark.parametrize("option", first(1, ["gres", "gpus", "gpus-per-node"]))
def test_each_way_to_ask_for_a_gpu_gives_one(user: User, option: str) -> None:
    profile_of(user, slurm={"gpu_option": option}, env={"PYTHONPATH": str(user.folder)})
    seen = json.loads((probed(user) / "seen.json").read_text())
    assert seen["CUDA_VISIBLE_DEVICES"] in ("0", "1")


def test_environment_template_umask_and_group_reach_a_job_and_its_files(
    user: User, team: str
) -> None:
    template = user.folder / "own.j2"
    template.write_text("echo template of {{ group.id }} in {{ plan.name }}, umask $(umask)\n")
    profile_of(
        user,
        slurm={"template": str(template), "options": {"nice": 5}},
        env={"PYTHONPATH": str(user.folder), "ODD": ODD},
        setup=["export SAID=setup"],
        umask="007",
        group=team,
    )
    folder = probed(user)

    seen = json.loads((folder / "seen.json").read_text())
    assert (seen["ODD"], seen["SAID"]) == (ODD, "setup")
    (log,) = folder.glob("jobs/*_log.out")
    assert log.read_text().splitlines()[0] == "template of g7 in probe, umask 0007"
    made = [folder, *folder.rglob("*")]
    assert {path.group() for path in made} == {team}
    assert {mode(path) for path in made if path.is_dir()} == {0o2770}
    written = [path for path in made if path.is_file() and path.parent.name != "jobs"]
    assert len(written) == 3
    assert {mode(path) for path in written} == {0o660}
    assert not any(mode(path) & 0o007 for path in made), "nobody else reads anything"


def test_a_job_runs_in_its_reservation(user: User) -> None:
    with user.lab.reserved("n4") as name:
        profile_of(user, slurm={"reservation": name}, env={"PYTHONPATH": str(user.folder)})
        seen = json.loads((probed(user) / "seen.json").read_text())
    assert (seen["SLURM_JOB_RESERVATION"], seen["SLURMD_NODENAME"]) == (name, "n4")


def test_all_that_an_experiment_leaves_is_for_its_group_alone(drill: Drill, team: str) -> None:
    path = drill.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**data, "umask": "007", "group": team}))

    run = drill.submit(drill.plan(stages=["inference", "evaluation", "reporting"]))
    run.wait()

    experiment = run.path
    made = [experiment, *experiment.rglob("*")]
    assert {path.group() for path in made} == {team}
    assert [path for path in made if mode(path) & 0o007] == []
    closed = {path for path in made if path.is_dir() and mode(path) & 0o070 != 0o070}
    tops = {path.relative_to(experiment).parts[0] for path in closed}
    assert tops == {"jobs", "kept"}, "a colleague could not write or score"
    code = [
        experiment / "resolved.json",
        experiment / "manifest.json",
        *(experiment / "jobs").iterdir(),
        *(experiment / "kept").rglob("*"),  # the engine's package
    ]
    assert [path for path in code if mode(path) & 0o022] == [], (
        "a colleague could run code in our name"
    )


@pytest.mark.campaign  # status waits two minutes for news of a job that is gone
@pytest.mark.apptainer
def test_a_last_job_that_died_is_a_job_again(slurm_user: User) -> None:
    """Its first try ends at once; the login node submits it again, and evaluates nothing itself."""
    user = slurm_user
    path = user.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(path.read_text())
    line = 'case "$SLURM_JOB_NAME" in *:finalise.0) exit 9;; esac'
    data["slurm"]["cpu_partition"] = "low"  # else the worker, which holds a GPU, evaluates
    data["slurm"]["last_job"] = {"memory_gb": 2, "time_limit": "00:10:00"}
    path.write_text(yaml.safe_dump({**data, "setup": [line]}))
    experiment = user.submit(user.plan("again", [{**VQA, "limit": 8}]))
    until(lambda: user.status(experiment)["state"] == "done", 300, "the second last job", every=1)
    (failure,) = user.status(experiment)["failures"]
    assert (
        "last job, which evaluates and reports, died: its job ended with exit code 9"
        in failure["cause"]
    )
    names = [f"hpcbench:{experiment}:{step}.0" for step in ("finalise", "finalise+1")]
    argv = ["sacct", "-nXP", f"--name={','.join(names)}", "--format=JobName,State,ReqMem"]
    ended = [[names[0], "FAILED"], [names[1], "COMPLETED"]]

    def ran() -> list[list[str]]:
        return [one.split("|") for one in user.lab.run_as_user(argv).stdout.split()]

    until(lambda: [one[:2] for one in ran()] == ended, 60, "the end of the last job", every=1)
    assert {one[2] for one in ran()} <= {"2G", "2048M", "2Gn", "2048Mn"}
