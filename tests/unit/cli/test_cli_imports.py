"""Modules that a command loads before it answers, and a job before it works: each costs all of them time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from tests.conftest import ROOT
from tests.unit.scene import Scene
from tests.unit.small import resolved, run_task, submitted

HEAVY = ("pydantic", "pydantic_core", "yaml", "rich", "hpcbench.registry.catalog")

ASKED = """
import sys
from hpcbench.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(code, *(one for one in {heavy!r} if one in sys.modules), file=sys.stderr)
"""


def loaded(*words: str, home: Path, config: Path) -> list[str]:
    """Exit code of a command, and which heavy modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(heavy=HEAVY), *words],
        env={"HPCBENCH_HOME": str(home), "XDG_CONFIG_HOME": str(config), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return done.stderr.splitlines()[-1].split()


def not_started(folder: Path) -> Experiment:
    return submitted(folder, resolved(run_task("a"), executor="local"), 4)


def at_work(folder: Path) -> Experiment:
    """Two workers, one of which has answered a shard."""
    scene = Scene(folder)
    scene.submitted()
    scene.claimed(index=0, answered=10, end="done")
    scene.claimed(index=1, answered=3, job="4711_1")
    for job in ("4711_0", "4711_1"):
        scene.worker(job, ("model_loading", {"model": "m"}), ("model_ready", {"model": "m"}))
    return scene.experiment


def test_help_loads_no_library(tmp_path: Path) -> None:
    assert loaded("--help", home=tmp_path, config=tmp_path) == ["0"]


@pytest.mark.long
@pytest.mark.parametrize("make", [not_started, at_work])
@pytest.mark.parametrize("verb", ["status", "list"])
def test_a_status_imports_no_pydantic(
    verb: str, make: Callable[[Path], Experiment], tmp_path: Path
) -> None:
    experiment = make(tmp_path)
    words = (verb, "--json") if verb == "list" else (verb, str(experiment.path), "--json")
    home = experiment.path.parent.parent
    assert loaded(*words, home=home, config=tmp_path) == ["0"]


def test_a_job_loads_no_numpy_to_read_its_pickle(tmp_path: Path) -> None:
    """Outside a job submitit gives up once it is loaded."""
    code = (
        "import contextlib, sys\nfrom hpcbench.submit.job_start import main\n"
        f"with contextlib.suppress(RuntimeError): main([{str(tmp_path)!r}])\n"
        "print(*(one in sys.modules for one in ('submitit.core.submission', 'numpy')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == "True False\n"


@pytest.mark.long
def test_the_portal_starts_without_libraries_that_read_answers() -> None:
    code = (
        "import sys, hpcbench.portal.app, hpcbench.portal.serve\n"
        "print(*(one for one in ('lxml', 'matplotlib', 'numpy', 'polars', 'scipy') if one in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == "\n"
