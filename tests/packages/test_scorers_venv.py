"""Publishers' scorers in virtual environments of their recipes' locked packages, where no image is built.

Programs that a recipe takes from Debian have to be on this machine: Chromium for olmOCR-bench.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import unavailable
from tests.packages.test_pythons import interpreters
from tests.publishers import CASES, RECIPES, Case, arguments, compare, prepared

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800)]

FROM_DEBIAN = ("omnidocbench", "ocrbench-v2")
"""Recipes that need of Debian what this machine need not have: LaTeX, WordNet."""

PYTHONS = {"bookworm": "Python 3.11.", "trixie": "Python 3.13."}
"""Python of each Debian."""


def environment(case: Case, folder: Path) -> Path:
    """A virtual environment with what the recipe locks."""
    python = folder / "bin/python"
    uv = [str(Path(sys.executable).with_name("uv"))]
    wanted = PYTHONS[case.suite]
    for found in interpreters():
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
        if said.stdout.startswith(wanted):
            break
    else:
        unavailable(f"there is no {wanted}*")
    subprocess.run([*uv, "venv", "-q", "--python", found, folder], check=True)
    install: list[str | Path] = [*uv, "pip", "install", "-q", "--python", python]
    subprocess.run(
        [*install, "--require-hashes", "-r", RECIPES / case.recipe / "requirements.lock"],
        check=True,
    )
    return python


def browsers(python: Path, folder: Path) -> Path:
    """A folder in which playwright finds this machine's Chromium, as the recipe makes one in its image."""
    code = "import playwright.sync_api as p; p.sync_playwright().start().chromium.launch()"
    env = {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(folder)}
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    shell = Path(done.stderr.partition("doesn't exist at ")[2].split("\n")[0])
    chromium = shutil.which("chromium") or unavailable("there is no Chromium")
    shell.parent.mkdir(parents=True)
    shell.symlink_to(chromium)
    return folder


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.recipe not in FROM_DEBIAN], ids=lambda case: case.name
)
def test_beside_its_locked_packages_a_scorer_gives_what_its_own_command_gives(
    tmp_path: Path, case: Case
) -> None:
    python = environment(case, tmp_path / "environment")
    env = {
        **os.environ,
        "HPCBENCH_HOME": str(tmp_path / "home"),
        "RUN_MODE": "dev",
        "HOME": str(tmp_path),
    }
    if case.recipe == "olmocr-bench":
        env["PLAYWRIGHT_BROWSERS_PATH"] = str(browsers(python, tmp_path / "browsers"))
    definition, answers = prepared(case, tmp_path)
    registry = tmp_path / "registry"
    written = {"datasets/theirs": definition} | {
        f"metrics/{name}": {"name": name, "image": f"venv:{tmp_path}/environment", **fields}
        for name, fields in case.metrics.items()
    }
    for name, data in written.items():
        (registry / name).parent.mkdir(parents=True, exist_ok=True)
        (registry / f"{name}.yaml").write_text(yaml.safe_dump({"schema_version": 1, **data}))
    words = [Path(sys.executable).with_name("hpcbench"), *arguments(case, answers)]
    words += ["--registry", registry]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    program = case.command.replace("DATA", str(tmp_path / "data"))
    path = f"{python.parent}:{env['PATH']}"
    theirs = subprocess.run(
        [python, "-c", program],
        capture_output=True,
        text=True,
        env={**env, "PATH": path},
        check=False,
    )
    assert theirs.returncode == 0, theirs.stderr
    compare(case, json.loads(done.stdout)["rows"], theirs.stdout)
