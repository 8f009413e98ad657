"""Publishers' scorers in images built from `recipes/scorers`, against the publishers' own commands."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apptainer.test_image_recipes import LONGEST, pip_here
from tests.cluster.lab import Lab
from tests.publishers import CASES, RECIPES, Case, arguments, compare, prepared
from tests.user import User

pytestmark = [
    pytest.mark.apptainer,
    pytest.mark.campaign,  # each builds an image of hundreds of megabytes
    pytest.mark.timeout(3600),
]


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    made = lab.new_directory("scorers")
    shutil.copytree(RECIPES, made / "recipes")
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_in_its_image_a_publishers_scorer_gives_what_its_own_command_gives(
    user: User, lab: Lab, folder: Path, case: Case
) -> None:
    reference, digest = lab.base_image(case.suite)
    _, mounts, env = pip_here()
    dockerfile = folder / "recipes" / case.recipe / "Dockerfile"
    base = f"{reference.removeprefix('docker://')}@{digest}"
    user.init(insecure_registry=base.partition("/")[0])
    user.at_site(build_args={"BASE": base}, build_binds=mounts, build_env=env)
    (built,) = user.json("images", "build", dockerfile, timeout=3 * LONGEST)
    print(case.recipe, Path(built["path"]).stat().st_size)

    definition, answers = prepared(case, folder)
    user.write("datasets/theirs.yaml", definition)
    for name, fields in case.metrics.items():
        user.write(f"metrics/{name}.yaml", {"name": name, "image": str(dockerfile), **fields})
    program = folder / "theirs.py"
    program.write_text(case.command.replace("DATA", str(folder / "data")))
    subprocess.run(["chown", "-R", "hpcuser:", folder], check=True)

    words = [*arguments(case, answers), "--registry", user.registry]
    done = user.hpcbench(*words, timeout=3 * LONGEST)
    assert done.returncode == 0, done.stderr
    argv: list[str | Path] = ["apptainer", "-q", "exec", "--containall", "--no-home"]
    argv += ["--workdir", folder, "--bind", folder]
    theirs = lab.run_as_user([*argv, built["path"], "python3", program], timeout=3 * LONGEST)
    assert theirs.returncode == 0, theirs.stderr
    compare(json.loads(done.stdout)["rows"], theirs.stdout)
