"""A home of experiments, a portal that shows it, and Debian's Chromium."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks import portal_home
from hpcbench.experiment.layout import Experiment
from tests.cluster.packages import install_packages
from tests.conftest import unavailable
from tests.portal.browsing import CHROMIUM, FLAGS, Running, Watch, tab


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """Three experiments that have ended and one that runs, with pages, answers and scores; oldest first."""
    size = portal_home.Size(
        tmp_path_factory.mktemp("portal") / "home",
        experiments=3, run_tasks=12, samples=60, answers=3, running=1,
    )  # fmt: skip
    return portal_home.make(size, tell=lambda line: None)


@pytest.fixture(scope="session")
def home(made: list[Experiment]) -> Path:
    """Folder of these experiments."""
    return made[0].path.parent.parent


@pytest.fixture
def growing(made: list[Experiment]) -> Iterator[Experiment]:
    """An experiment whose worker is at it."""
    # Slow: several tests of a process share what there is to answer, also on a slow machine.
    worker = subprocess.Popen(
        [sys.executable, portal_home.__file__, "--grow", made[-1].path, "--per-second", "1"]
    )
    yield made[-1]
    worker.kill()
    worker.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; all tests of a process share it, each has a profile of its own."""
    if not Path(CHROMIUM).exists():
        try:
            install_packages(["chromium"])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
            unavailable(f"no Chromium on this machine: {error}")
    # Other parts of the tests keep the processors busy, and the portal lets all other processes go first.
    expect.set_options(timeout=90_000)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        print(f"Chromium {found.version}")  # noqa: T201 - for the log of a failure
        yield found
        found.close()


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder of plans."""
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="session")
def running(home: Path, plans: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The portal that all tests of a process share."""
    with Running(
        home, plans, tmp_path_factory.mktemp("its"), ("--allow-edit", "--allow-submit")
    ) as portal:
        yield portal


@pytest.fixture
def watch(running: Running) -> Iterator[Watch]:
    """Nothing that a page must never do is done."""
    watching = Watch(f"http://localhost:{running.port}")
    yield watching
    watching.check()


@pytest.fixture
def page(browser: Browser, running: Running, watch: Watch) -> Iterator[Page]:
    """A page, signed in, at the list of experiments."""
    with tab(browser, running, watch) as (_, opened):
        yield opened
