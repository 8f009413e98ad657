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
from tests.publishers import CASES, RECIPES, Case, arguments, compare, html, plain_files, prepared
from tests.user import User

pytestmark = [
    pytest.mark.apptainer,
    pytest.mark.campaign,  # each builds an image of hundreds of megabytes
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def cache(lab: Lab) -> Iterator[Path]:
    """Images that an earlier case built: three cases are of one."""
    made = lab.new_directory("scorers-cache")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def user(lab: Lab, python_with_pdf: Path, cache: Path) -> Iterator[User]:
    """A user whose hpcbench reads the pages of these datasets."""
    folder = lab.new_directory("bench")
    one = User(lab, python_with_pdf, folder)
    one.share_cache(cache)
    yield one
    shutil.rmtree(folder)


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    made = lab.new_directory("scorers")
    shutil.copytree(RECIPES, made / "recipes")
    yield made
    shutil.rmtree(made)


def image_of(user: User, lab: Lab, dockerfile: Path, suite: str) -> Path:
    """The SIF of a recipe, built as a user builds it, on the lab's Debian."""
    reference, digest = lab.base_image(suite)
    _, mounts, env = pip_here()
    base = f"{reference.removeprefix('docker://')}@{digest}"
    user.init(insecure_registry=base.partition("/")[0])
    user.at_site(build_args={"BASE": base}, build_binds=mounts, build_env=env)
    (built,) = user.json("images", "build", dockerfile, timeout=3 * LONGEST)
    return Path(built["path"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_in_its_image_a_publishers_scorer_gives_what_its_own_command_gives(
    user: User, lab: Lab, folder: Path, case: Case
) -> None:
    dockerfile = folder / "recipes" / case.recipe / "Dockerfile"
    image = image_of(user, lab, dockerfile, case.suite)
    print(case.recipe, image.stat().st_size)
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
    print(done.stderr)  # names the fault of a sample without a score
    argv: list[str | Path] = ["apptainer", "-q", "exec", "--containall", "--no-home"]
    argv += ["--workdir", folder, "--bind", folder]
    theirs = lab.run_as_user(
        [*argv, image, "env", f"HOME={folder}", "python3", program], timeout=3 * LONGEST
    )
    assert theirs.returncode == 0, theirs.stderr
    compare(case, json.loads(done.stdout)["rows"], theirs.stdout)


def test_an_answer_on_which_a_scorer_hangs_and_a_scorer_of_another_release_are_said(
    user: User, lab: Lab, folder: Path
) -> None:
    dockerfile = folder / "recipes/grits/Dockerfile"
    image_of(user, lab, dockerfile, "bookworm")
    right = html([["a", "b"], ["c", "d"]])
    hangs = "<table><tr><td rowspan=20000 colspan=20000>a</td></tr></table>"
    texts = [right, hangs, right.replace("a", "x")]
    (folder / "data").mkdir()
    definition = plain_files(folder / "data", [right] * 3, texts)
    answers = folder / "answers.jsonl"
    lines = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    user.write("datasets/theirs.yaml", {"name": "theirs", **definition})
    for name, options in {"ours": {}, "older": {"release": "0.6.0"}}.items():
        fields = {"plugin": "grits", "image": str(dockerfile), "options": options}
        user.write(f"metrics/{name}.yaml", {"name": name, **fields})
    subprocess.run(["chown", "-R", "hpcuser:", folder], check=True)
    words: list[str | Path] = ["score", answers, "--dataset", "theirs", "--ml-task", "ocr"]
    words += ["--registry", user.registry, "--metrics"]
    done = user.hpcbench(*words, "ours", timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    assert (
        "1 sample without a score by ours: ProgramFailed: took longer than 30 s, e.g. 1"
        in done.stdout + done.stderr
    )
    (row,) = json.loads(user.ok(*words, "ours", "--json", timeout=LONGEST))["rows"]
    assert (row["n"], row["faults"]) == (2, 1) and 0.5 < row["value"] < 1
    refused = user.hpcbench(*words, "older", timeout=LONGEST)
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    said = "the metric is of grits-metric 0.6.0, and grits-metric 0.7.0 is installed here"
    assert said in refused.stderr.splitlines()[-1]
