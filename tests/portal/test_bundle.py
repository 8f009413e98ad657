"""A copy of an experiment's pages on a file server: it shows all, and offers nothing that it cannot do."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from hpcbench.experiment.layout import Experiment
from hpcbench.status import Observer
from tests.portal.browsing import Watch, opened
from tests.portal.walk import settled
from tests.user import until


def bundle(experiment: Experiment, out: Path, *options: str) -> None:
    """`hpcbench portal bundle EXPERIMENT --out FOLDER`, as a user types it."""
    argv = [sys.executable, "-m", "hpcbench.cli.main", "portal", "bundle", experiment.id]
    home = {"HPCBENCH_HOME": str(experiment.path.parent.parent)}
    done = subprocess.run(
        [*argv, "--out", out, *options],
        env={**os.environ, **home}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Python's own file server on a free port of the loopback; its origin."""
    argv = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        [*argv, "--directory", folder],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{server.stdout.readline().split('port ')[1].split()[0]}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def ended(made: list[Experiment]) -> Experiment:
    """An experiment that has ended, with its answers."""
    return made[2]


@pytest.fixture(scope="module")
def served(ended: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A copy of it, with images and logs, on a file server."""
    out = tmp_path_factory.mktemp("copy") / "bundle"
    bundle(ended, out, "--images", "--logs")
    with file_server(out) as origin:
        yield origin


@pytest.fixture
def page(browser: Browser, served: str) -> Iterator[Page]:
    """A page at the start of the copy, watched."""
    watch = Watch(served)
    with opened(browser, watch, f"{served}/") as (_, at):
        yield at
    watch.check()


def heading(page: Page, text: str) -> None:
    """The page that is shown."""
    expect(page.get_by_role("heading", level=1)).to_contain_text(text)


def test_from_its_start_to_a_wrong_sample_with_its_page(page: Page, ended: Experiment) -> None:
    page.get_by_role("link", name=ended.id).click()
    heading(page, ended.resolved.plan.name)
    expect(
        page.get_by_role("grid", name=re.compile("models in rows, datasets in columns"))
    ).to_be_visible()
    page.get_by_role("tab", name=re.compile("Charts")).click()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=20_000)
    page.get_by_role("tab", name=re.compile("Run tasks")).click()
    page.get_by_role("link", name=re.compile("vl-00-3b, pages00: anls")).click()
    heading(page, "pages00-vl-00-3b")
    page.get_by_role("link", name="Show wrong samples").click()
    heading(page, "Samples of pages00-vl-00-3b")
    expect(page.get_by_role("checkbox", name="Wrong")).to_be_checked()
    sample = page.get_by_role("region", name="Sample", exact=True)
    title = sample.get_by_role("heading", level=2)
    first = title.inner_text()
    page.keyboard.press("j")
    expect(title).not_to_have_text(first)
    picture = page.get_by_role("img", name=re.compile(re.escape(title.inner_text())))
    expect(picture).to_be_visible()
    page.wait_for_function("image => image.naturalWidth > 0", arg=picture.element_handle())
    settled(page)


def test_a_link_to_a_sample_shows_it_and_again_after_a_reload(
    page: Page, served: str, ended: Experiment
) -> None:
    page.goto(f"{served}/#/e/{ended.id}/t/pages00-vl-00-3b/samples?at=7")
    title = page.get_by_role("region", name="Sample", exact=True).get_by_role("heading", level=2)
    expect(title).to_have_text("d00001-2")
    page.reload()
    expect(title).to_have_text("d00001-2")
    expect(page.get_by_role("img", name=re.compile("d00001-2"))).to_be_visible()
    settled(page)


def test_every_part_of_every_page_is_there(page: Page, served: str, ended: Experiment) -> None:
    whole, task = f"/e/{ended.id}", f"/e/{ended.id}/t/pages00-vl-00-3b"
    tabs = {
        whole: (
            "tasks", "summary", "charts", "resources", "logs", "config", "provenance", "report",
        ),
        task: ("overview", "charts", "groups", "resources", "logs", "commands"),
    }  # fmt: skip
    for address in [f"{of}?tab={one}" for of, names in tabs.items() for one in names]:
        page.goto("about:blank")
        page.goto(f"{served}/#{address}")
        settled(page)
        expect(page.get_by_text("not part of the bundle"), address).to_have_count(0)


def test_logs_of_a_run_task_can_be_read(page: Page, served: str, ended: Experiment) -> None:
    page.goto(f"{served}/#/e/{ended.id}/t/pages00-vl-00-3b?tab=logs")
    expect(page.get_by_role("button", name=re.compile("engine of g0"))).to_be_visible()
    expect(page.get_by_text("lines here")).not_to_have_text("0 lines here")
    settled(page)


def test_it_says_of_when_it_is_and_offers_no_page_that_needs_a_portal(
    page: Page, served: str
) -> None:
    expect(page.get_by_text("As of")).to_be_visible()
    expect(page.get_by_text(re.compile("Live|Reconnecting|Stale|Running now"))).to_have_count(0)
    pages = page.get_by_role("navigation", name="Pages").get_by_role("listitem")
    expect(pages).to_have_text(["Experiments"])
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option").first).to_be_visible()
    named = page.get_by_role(
        "option", name=re.compile("Plans|Cluster|Compare|Regressions|Sign out")
    )
    expect(named).to_have_count(0)
    page.keyboard.press("Escape")
    for address in ("compare", "regressions", "plans", "plans/new", "cluster"):
        page.goto(f"{served}/#/{address}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Not in a copy")
        expect(page.get_by_role("main")).to_contain_text("needs a running portal")


def test_nothing_can_be_pressed_that_would_have_no_effect(
    page: Page, served: str, ended: Experiment
) -> None:
    words = "Export|Select|Filter|Flag|Note|Find a|Search|Limits|Order|Models|Datasets|Facets|Metric|Only"
    roles = ("button", "checkbox", "searchbox", "combobox", "search", "group")
    samples = f"/e/{ended.id}/t/pages00-vl-00-3b/samples"
    for address in ("/", f"/e/{ended.id}", f"{samples}?at=3", f"/e/{ended.id}?tab=logs"):
        page.goto(f"{served}/#{address}")
        settled(page)
        for role in roles:
            found = page.get_by_role(role, name=re.compile(rf"^({words})"))  # type: ignore[arg-type]
            expect(found, f"{role} at {address}").to_have_count(0)
    page.goto(f"{served}/#{samples}?outcome=failed&sort=anls&order=desc")
    expect(page.get_by_role("list", name="Filtered by")).to_have_count(0)
    expect(page.get_by_role("main").get_by_role("status").first).to_have_text("60")


def test_one_that_runs_is_shown_as_it_was_and_asks_for_nothing_later(
    browser: Browser, growing: Experiment, tmp_path: Path
) -> None:
    growing.workers_dir.mkdir(exist_ok=True)
    (growing.workers_dir / "g0.17_0-0.log").write_text("the engine has begun\n")
    until(lambda: Observer(growing).look().state == "running", 60, "its first answer")
    bundle(growing, tmp_path / "bundle", "--logs", "--samples", "1")
    with file_server(tmp_path / "bundle") as origin:
        watch = Watch(origin)
        with opened(browser, watch, f"{origin}/") as (_, page):
            asked: list[str] = []
            page.clock.install()
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{origin}/#/e/{growing.id}?tab=logs")
            page.reload()
            expect(page.get_by_text("running", exact=True).first).to_be_visible()
            expect(page.get_by_text("the engine has begun")).to_be_visible()
            settled(page)
            before = list(asked)
            page.clock.run_for(60_000)
            settled(page)
            assert asked == before
        watch.check()
