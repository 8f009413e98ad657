"""A package not installed, inside the SIF on a compute node: built on the login node, then mounted."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.v02 import own_module
from tests.user import User, answers_on_disk

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]


@pytest.fixture
def repository(slurm_user: User) -> Path:
    """A bare repository with the echo engine and a module, tag v1, that the ordinary user can read."""
    bare, work = slurm_user.folder / "echo.git", slurm_user.folder / "echo"
    shutil.copytree(ROOT / "examples/plugins/echo-engine", work)
    (work / "own_task.py").write_text(own_module())
    project, listed = work / "pyproject.toml", '"hpcbench_example_echo.py"'
    project.write_text(project.read_text().replace(listed, f'{listed}, "own_task.py"'))
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for argv in (
        ["init", "-q", str(work)],
        ["-C", str(work), "add", "-A"],
        ["-C", str(work), *who, "commit", "-qm", "echo"],
        ["-C", str(work), "tag", "v1"],
        ["clone", "-q", "--bare", str(work), str(bare)],
    ):
        subprocess.run(["git", *argv], check=True, capture_output=True)
    subprocess.run(["chown", "-R", "hpcuser:hpcuser", str(bare)], check=True)
    return bare


def test_an_engine_of_a_package_serves_inside_the_image_of_another(
    slurm_user: User, repository: Path, image: str
) -> None:
    user = slurm_user
    user.write("packages/echo.yaml", {
        "name": "echo", "provides": {"engines": ["echo"]},
        "source": {"type": "git", "url": f"file://{repository}", "ref": "v1"},
    })  # fmt: skip
    user.write_model("echo", image=image, engine="echo", gpus=1, engine_options={"answer": "42"})
    user.write("ml_tasks/own.yaml", {"name": "own", "plugin": "vqa", "metrics": ["exact_match"],
                                     "module": "own_task", "required_packages": ["echo"]})  # fmt: skip
    task = {
        "ml_task": "vqa",
        "model": "echo",
        "dataset": "demo_vqa",
        "prompt": "demo_vqa",
        "split": "easy",
    }
    own = {**task, "name": "own", "ml_task": "own", "limit": 5}
    plan = user.plan("echoed", [{**task, "name": "x", "limit": 12}, own], parallelism=1)

    done = user.hpcbench("submit", plan, "--registry", user.registry, "--wait", "--json")

    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert status["state"] == "done", status
    # The module has run in the same image, beside the same engine, and has asked it.
    assert [one["answered"] for one in status["run_tasks"]] == [12, 5]
    experiment = user.experiment(status["id"])
    manifest = json.loads((experiment / "manifest.json").read_text())
    (environment,) = manifest["environments"].values()
    assert environment["kind"] == "apptainer"
    assert manifest["plugin_packages"]["echo"].startswith(f"file://{repository}@")
    assert [text for _, text in answers_on_disk(experiment)] == ["42"] * 17


def test_a_package_that_conflicts_with_the_image_is_refused_with_both_versions(
    slurm_user: User, image: str
) -> None:
    user = slurm_user
    folder = user.folder / "greedy"
    folder.mkdir()
    (folder / "greedy.py").write_text(
        "class Engine:\n    api = 1\n    def launch_command(self, spec): ...\n"
    )
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "greedy"\nversion = "1.0"\ndependencies = ["numpy==1.26.4"]\n'
        '[project.entry-points."hpcbench.engines"]\ngreedy = "greedy:Engine"\n'
        '[tool.hatch.build.targets.wheel]\nonly-include = ["greedy.py"]\n'
    )
    user.environment["RUN_MODE"] = "dev"
    user.write("packages/greedy.yaml", {
        "name": "greedy", "provides": {"engines": ["greedy"]},
        "source": {"type": "local", "path": str(folder)},
    })  # fmt: skip
    user.write_model("greedy", image=image, engine="greedy", gpus=1)
    plan = user.plan("refused", [{"name": "x", "ml_task": "vqa", "model": "greedy", "dataset": "demo_vqa",
                                  "prompt": "demo_vqa", "limit": 4}])  # fmt: skip
    done = user.hpcbench("submit", plan, "--registry", user.registry)
    assert done.returncode == 2, done.stderr
    assert "greedy needs numpy 1.26.4, but numpy " in done.stderr.splitlines()[-1]
    assert user.jobs("-refused-") == set()
