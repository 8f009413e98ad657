"""Modules that a command loads before it answers, and a job before it works: each costs all of them time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from tests.conftest import ROOT
from tests.unit.small import resolved, run_task, submitted

HEAVY = ("pydantic", "yaml", "rich", "hpcbench.schema.definition", "hpcbench.registry.catalog")

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


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return submitted(tmp_path, resolved(run_task("a"), executor="local"), 4)


def test_help_loads_no_library(tmp_path: Path) -> None:
    assert loaded("--help", home=tmp_path, config=tmp_path) == ["0"]


@pytest.mark.long
@pytest.mark.parametrize("verb", ["status", "list"])
def test_a_status_loads_no_schemas_of_definitions(
    verb: str, experiment: Experiment, tmp_path: Path
) -> None:
    words = (verb, "--json") if verb == "list" else (verb, str(experiment.path), "--json")
    home = experiment.path.parent.parent
    assert loaded(*words, home=home, config=tmp_path) == ["0", "pydantic"]


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
