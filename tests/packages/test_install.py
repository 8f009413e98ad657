"""The wheel and the source distribution, as users install them: each in an environment of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(900)

THEIRS = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"
[project]
name = "hpcbench"
version = "0.11"
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that `make dist` makes; the wheel is built from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True)
    return folder


class Place:
    """A virtual environment with hpcbench, and the shell of its user."""

    def __init__(self, folder: Path, what: str) -> None:
        self.bin, self.folder = folder / "venv/bin", folder
        uv = [sys.executable, "-m", "uv"]  # ten times as fast as pip, which users have: `--seed`
        make = [*uv, "venv", "-q", "--seed", "--python", sys.executable, str(self.bin.parent)]
        subprocess.run(make, check=True)
        self._uv_pip = [*uv, "pip"]
        self.pip("install", what)

    def pip(self, verb: str, *words: str) -> None:
        argv = [*self._uv_pip, verb, "-q", "--python", str(self.bin / "python"), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environ = clean | {
            "PATH": f"{self.bin}:{clean['PATH']}",
            "HPCBENCH_HOME": str(self.folder / "home"),
        }
        environ["XDG_CONFIG_HOME"] = str(self.folder / "config")
        return subprocess.run(
            words, cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )

    def installed(self) -> dict[str, Any]:
        """Doctor's line about the installation."""
        checks = json.loads(self.run("hpcbench", "doctor", "--json").stdout)
        (found,) = (one for one in checks if one["name"] == "installed")
        return dict(found)


def test_a_wheel_has_all_that_a_checkout_has_and_its_hints_really_install(
    dist: Path, tmp_path: Path
) -> None:
    (wheel,) = dist.glob("hpcbench_vlm-*.whl")
    place = Place(tmp_path, str(wheel))
    assert place.run("hpcbench", "--version").stdout.startswith("hpcbench ")
    assert place.installed()["state"] == "ok"
    assert place.run("hpcbench", "init", "--ci", "gitlab", "--dry-run").returncode == 0
    listed = place.run("hpcbench", "plugins", "list", "--json").stdout
    assert {one["state"] for one in json.loads(listed)} == {"ok"}

    # What a message says to type is typed.
    hint = "from hpcbench.installed import install_hint; print(install_hint('excel'))"
    command = place.run("python", "-c", hint).stdout.strip()
    assert command == "pip install 'openpyxl>=3.1'"
    assert place.run(*shlex.split(command)).returncode == 0
    assert place.run("python", "-c", "import openpyxl").returncode == 0

    # Another project's package comes over ours, and goes again with half of it.
    theirs = tmp_path / "theirs"
    (theirs / "hpcbench").mkdir(parents=True)
    (theirs / "hpcbench/__init__.py").write_text('__version__ = "0.11"\n')
    (theirs / "pyproject.toml").write_text(THEIRS)
    place.pip("install", "--no-deps", str(theirs))
    refused = place.run("hpcbench", "list")
    assert refused.returncode == 3
    assert "is another project's, or damaged" in refused.stderr
    assert refused.stderr.count("\n") == 1
    place.pip("uninstall", "hpcbench", "hpcbench-vlm")
    place.pip("install", "--no-deps", str(wheel))
    assert place.installed()["state"] == "ok"


def test_a_source_distribution_installs_the_same_files(dist: Path, tmp_path: Path) -> None:
    (source,) = dist.glob("hpcbench_vlm-*.tar.gz")
    place = Place(tmp_path, str(source))
    assert place.installed()["detail"].startswith("hpcbench-vlm ")
    assert place.run("hpcbench", "registry", "list", "models").returncode == 0
    plan = place.run(
        "python", "-c", "from hpcbench.registry.catalog import share_dir; print(share_dir())"
    ).stdout.strip()
    done = place.run("hpcbench", "validate", f"{plan}/examples/demo/plan.yaml")
    assert done.returncode == 0, done.stderr
