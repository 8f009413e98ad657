"""A running experiment is seen to move; a server that goes away is reported, and found again."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import Running, Watch, answered, tab
from tests.user import until


def test_answers_on_disk_move_the_page_without_a_reload(
    page: Page, watch: Watch, growing: Experiment
) -> None:
    page.goto(f"{watch.origin}/#/e/{growing.id}")
    expect(page.get_by_text(re.compile("of 720 samples")).first).to_be_visible()
    page.evaluate("window.notReloaded = true")
    before = answered(page)
    until(lambda: answered(page) > before, 60, "further answers on the page")
    assert page.evaluate("window.notReloaded")


def test_a_server_that_is_gone_is_reported_and_found_again(
    browser: Browser, home: Path, plans: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with contextlib.ExitStack() as stack:
        portal = stack.enter_context(
            Running(home, plans, tmp_path_factory.mktemp("mortal"), ("--keep",))
        )
        port = portal.port
        watch = Watch(f"http://localhost:{port}", expects_faults=True)
        _, page = stack.enter_context(tab(browser, portal, watch))
        expect(page.get_by_role("grid", name="Experiments")).to_be_visible()
        portal.stop()
        banner = page.get_by_text(re.compile("ssh -N"))
        expect(banner.first).to_be_visible(timeout=60_000)
        portal.start(port)
        expect(banner).to_have_count(0, timeout=60_000)
        # A session dies with its portal: the place is kept, and a new link opens it.
        expect(
            page.get_by_role("heading", name="Sign in").or_(
                page.get_by_role("grid", name="Experiments")
            )
        ).to_be_visible(timeout=60_000)
    assert not watch.dialogs
    assert not watch.strayed
