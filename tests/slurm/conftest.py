"""Users of the real cluster whose engine is a fake one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.faults.conftest import routes_of
from tests.slurm.drill import Drill, Run

MakeDrill = Callable[[], Drill]


@pytest.fixture(scope="session")
def make_drill(lab: Lab, lab_python: Path, shared_cache: Path) -> Iterator[MakeDrill]:
    """Makes users; their jobs and folders go when the session ends, or before."""
    made: list[Drill] = []

    def make() -> Drill:
        made.append(Drill(lab, lab_python, lab.new_directory("drill"), shared_cache))
        return made[-1]

    yield make
    for drill in made:
        if drill.folder.exists():
            drill.end()
            shutil.rmtree(drill.folder, ignore_errors=True)


@pytest.fixture
def drill(make_drill: MakeDrill, request: pytest.FixtureRequest) -> Iterator[Drill]:
    """A user; only her own jobs are cancelled in the end. Half of all tests go by each route."""
    one = make_drill()
    one.route = routes_of(request.function.__name__)[0]
    yield one
    one.end()
    shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def calm(make_drill: MakeDrill) -> Run:
    """The undisturbed run of the plan that all faults disturb."""
    run = make_drill()
    found = run.submit(run.plan())
    found.wait("done")
    return found
