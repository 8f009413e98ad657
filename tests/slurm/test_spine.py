"""The whole way on real parts: Slurm, Apptainer, an engine with a real model, scores, a report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import polars
import pytest
import yaml
from polars.testing import assert_frame_equal

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.scores import ScoresFiles, read_keys
from tests.help_examples import example
from tests.slurm.drill import Drill, Run, whole
from tests.user import User, answers_on_disk, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]

VQA = {
    "name": "vqa",
    "ml_task": "vqa",
    "model": "tiny-vlm",
    "dataset": "demo_vqa",
    "split": "easy",
    "prompt": "demo_vqa",
}
KIE = {
    "name": "kie",
    "ml_task": "kie",
    "model": "tiny-vlm",
    "dataset": "demo_kie",
    "split": "hard",
    "prompt": "demo_kie",
}

SECRET = "hf_c0ffee1234567890secret"
KEY = "tell-tale-key-of-the-wrapper"


def test_a_plan_becomes_arrays_answers_scores_and_a_report(
    slurm_user: User, image: str, tmp_path: Path
) -> None:
    """The last job scores, in two images, on the site's CPU partition."""
    user = slurm_user
    user.environment["HF_TOKEN"] = SECRET
    _make_keys_known(user)
    profile = user.folder / "config/hpcbench/sites/default.yaml"
    site = yaml.safe_load(profile.read_text())
    site["slurm"]["cpu_partition"] = "low"
    profile.write_text(yaml.safe_dump(site))
    (sif,) = user.json("images", "build", image)
    user.write("metrics/anls_elsewhere.yaml",
               {"name": "anls_elsewhere", "plugin": "anls", "image": sif["path"]})  # fmt: skip
    vqa = {**VQA, "limit": 48, "metrics": ["anls", "exact_match", "anls_elsewhere"]}
    plan = user.plan(
        "spine", [vqa, {**KIE, "limit": 24}], parallelism=2, shard_size=8, evaluation={"image": image},
    )  # fmt: skip

    printed = user.ok("submit", plan, "--registry", user.registry, "--wait")

    experiment = user.experiment(re.findall(r"submitted (\S+)", printed)[0])
    assert f"report: {experiment}/report/report.html" in printed
    metrics = json.loads((experiment / "metrics.json").read_text())["run_tasks"]
    assert metrics["vqa"]["coverage"] == metrics["kie"]["coverage"] == 1.0
    assert metrics["vqa"]["metrics"]["exact_match"]["value"] >= 0.8
    assert f"{metrics['vqa']['metrics']['anls']['value']:.3f}" in printed
    owners = _owners(experiment)
    assert len({owner["job"] for owner in owners}) > 1, "one worker did everything"
    manifest = json.loads((experiment / "manifest.json").read_text())
    environment, *scoring = manifest["environments"].values()
    assert [one["kind"] for one in (environment, *scoring)] == ["apptainer"] * 3
    files = [Path(one["path"]).resolve() for one in (environment, *scoring)]
    assert files == [Path(sif["path"]).resolve()] * 3
    vqa_values = metrics["vqa"]["metrics"]
    assert vqa_values["anls_elsewhere"]["value"] == vqa_values["anls"]["value"]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", environment["digest"])
    assert Path(environment["path"]).suffix == ".sif"
    assert _files_with(experiment, SECRET) == []
    assert (user.folder / "known" / "drawn").exists(), "no worker drew the key we look for"
    assert _files_with(experiment, KEY) == []
    # It has reported, and Slurm has yet to write down that its job ended.
    until(lambda: "RUNNING" not in _accounting(user, experiment.name), 120, "the jobs' ends")
    (scorer,) = set(_accounting(user, experiment.name, "Partition", "finalise"))
    assert scorer == "low"
    states = _accounting(user, experiment.name)
    assert {state.partition(" ")[0] for state in states} <= {"COMPLETED", "CANCELLED"}, states
    assert states.count("COMPLETED") >= 3
    _scores_as_on_the_host(Experiment(experiment), tmp_path / "experiments" / experiment.name)


def test_dry_run_prints_the_batch_script_and_touches_nothing(slurm_user: User) -> None:
    user = slurm_user
    plan = user.plan("dry", [VQA], parallelism=2)
    before = sorted(user.home.rglob("*"))

    printed = user.ok("submit", plan, "--registry", user.registry, "--dry-run")

    assert "#SBATCH --array=0-1%2" in printed
    assert "#SBATCH --gres=gpu" in printed
    assert "#SBATCH --signal=B:USR2@" in printed
    assert sorted(user.home.rglob("*")) == before
    assert user.jobs("-dry-") == set()


@pytest.mark.campaign  # the tutorial sends the same job without an image
def test_doctor_checks_the_site_and_sends_one_real_job(slurm_user: User, image: str) -> None:
    printed = slurm_user.ok(*example("doctor --run"), "--image", image)

    for check in ("python", "home", "scratch", "slurm", "partition", "container"):
        assert f"✓ {check}: " in printed
    assert "exact_match" in printed
    assert "report: " in printed


@pytest.mark.campaign
def test_doctor_measures_the_network_between_two_nodes(slurm_user: User, image: str) -> None:
    printed = slurm_user.ok(*example("doctor --run --nodes 2"), "--image", image)
    print(printed)

    assert re.search(
        r"all-reduce by gloo between n\d and n\d over lo: \d+ µs for 4 bytes, ", printed
    )
    assert "the figures are those of CPUs" in printed
    assert not list(slurm_user.home.glob("doctor-link*")) and not slurm_user.lab.squeue()


def test_two_experiments_at_once_do_not_disturb_each_other(drill: Drill, calm: Run) -> None:
    command = ("submit", "--registry", drill.folder / "registry", "--wait")
    running = [drill.start(*command, drill.plan(name=name)) for name in ("one", "two")]
    said = [process.communicate(timeout=900) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    states = {
        row["id"].split("-")[2]: row["state"] for row in json.loads(drill.run("list", "--json")[0])
    }
    assert states == {"one": "done", "two": "done"}
    for run in drill.known():
        assert run.answers() == calm.answers()
        assert run.twice() == []


@pytest.mark.campaign  # test_faults_submission.py kills it again and again, with an engine that costs nothing
@pytest.mark.parametrize("victim", [2, 1])
def test_submit_killed_after_any_sbatch_and_run_again_submits_nothing_twice(
    slurm_user: User, victim: int
) -> None:
    user = slurm_user
    plan = user.plan("once", [{**VQA, "limit": 8}], shard_size=8)
    shim = _killing_sbatch(user, victim)

    killed = user.start("submit", plan, "--registry", user.registry, path=str(shim))
    killed.communicate(timeout=120)
    assert killed.returncode == -9 or killed.returncode == 137
    answer = user.json("submit", plan, "--registry", user.registry)

    assert user.wait(answer["id"])["state"] == "done"
    assert len(user.json("list")) == 1
    names = _job_names(user, answer["id"])
    assert sorted(names) == sorted(set(names)), "a step was submitted twice"
    (only,) = rounds(Experiment(user.experiment(answer["id"])))
    assert set(only.jobs) == {"g0", "finalise"}


def test_cancel_ends_the_jobs_and_resume_goes_on(drill: Drill, calm: Run) -> None:
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan())
    until(lambda: run.answered() > 4, 120, "answers")

    drill.run("cancel", run.id)

    until(lambda: not run.jobs(), 60, "its jobs to end", every=0.3)
    assert run.status()["state"] == "cancelled"
    before = run.answers()
    assert len(before) < 40
    drill.script(answer_ms=[1, 3])
    run.resume()
    run.wait()
    whole(run, calm, [before])


def _scores_as_on_the_host(here: Experiment, folder: Path) -> None:
    """Score the same answers again, in this process: every bit is the same."""
    shutil.copytree(here.path, folder)
    shutil.rmtree(folder / "scores")
    plan = here.resolved
    assert {metric.image for one in plan.run_tasks for metric in one.metrics} != {None}
    own = [
        one.model_copy(
            update={"metrics": tuple(m.model_copy(update={"image": None}) for m in one.metrics)}
        )
        for one in plan.run_tasks
    ]
    there = Experiment(folder)
    there.resolved_file.write_text(
        plan.model_copy(update={"run_tasks": tuple(own)}).model_dump_json()
    )
    evaluate(there)
    assert there.metrics_file.read_bytes() == here.metrics_file.read_bytes()
    for one in own:
        first, second = (ScoresFiles(side.scores_dir, one.name) for side in (here, there))
        assert read_keys(first) != read_keys(second), "the image is part of what determines scores"
        for name in ("scores", "fields"):
            files = [getattr(place, name) for place in (first, second)]
            assert files[0].exists() == files[1].exists()
            if files[0].exists():
                assert_frame_equal(*map(polars.read_parquet, files), check_exact=True)


def _owners(experiment: Path) -> list[dict[str, object]]:
    here = Experiment(experiment)
    names = [run_task.name for run_task in here.resolved.run_tasks]
    return [dict(state.owner or {}) for state in shard_states(here, names)]


def _make_keys_known(user: User) -> None:
    """Have the worker draw a key that the test can look for."""
    folder = user.folder / "known"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import pathlib, secrets\n"
        "def known(size=32):\n"
        f"    pathlib.Path({str(folder / 'drawn')!r}).touch()\n"
        f"    return {KEY!r}\n"
        "secrets.token_urlsafe = known\n"
    )
    shutil.chown(folder, "hpcuser")
    user.environment["PYTHONPATH"] = str(folder)


def _files_with(folder: Path, text: str) -> list[str]:
    found = subprocess.run(["grep", "-rl", text, str(folder)], capture_output=True, text=True)
    return found.stdout.splitlines()


def _accounting(user: User, experiment: str, column: str = "State", step: str = "") -> list[str]:
    """A column of sacct for the experiment's jobs, or those of a step."""
    words = ["sacct", "-X", "--parsable2", "--noheader", f"--format=JobName%120,{column}"]
    rows = [line.split("|") for line in user.lab.run_as_user(words).stdout.splitlines()]
    return [value for name, value in rows if experiment in name and step in name]


def _job_names(user: User, experiment: str) -> list[str]:
    done = user.lab.run_as_user(["sacct", "-X", "-n", "-P", "--format=JobName%120"])
    return [name for name in done.stdout.split() if experiment in name]


def _asked_twice(experiment: Path) -> list[str]:
    """Samples with more than one acknowledged answer."""
    seen = Counter(key for key, _ in answers_on_disk(experiment))
    return [key for key, count in seen.items() if count > 1]


def _killing_sbatch(user: User, victim: int) -> Path:
    """An sbatch that works, and kills its caller for the VICTIMth time before it answers."""
    folder = user.folder / "shim"
    folder.mkdir()
    counter = folder / "count"
    shim = folder / "sbatch"
    shim.write_text(
        "#!/bin/bash\n"
        f"count=$(( $(cat {counter} 2>/dev/null || echo 0) + 1 )); echo $count > {counter}\n"
        'answer=$(/usr/bin/sbatch "$@"); code=$?\n'
        f'if [ "$count" = {victim} ]; then kill -9 $PPID; exit; fi\n'
        'echo "$answer"; exit $code\n'
    )
    shim.chmod(0o755)
    subprocess.run(["chown", "-R", "hpcuser", str(folder)], check=True)
    return folder
