"""Logs in a real browser: every line of one can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import portal_of
from tests.unit import small


@pytest.fixture
def logged(tmp_path: Path) -> Experiment:
    """An experiment whose log ends in a line of 3 MB."""
    here = small.experiment(tmp_path, [small.record(0)])
    here.workers_dir.mkdir(exist_ok=True)
    early = "".join(f"early line {number}\n" for number in range(200))
    bar = "".join(f"\r{number:9}%" for number in range(150_000))
    long = "".join(f"{number:09} " for number in range(300_000))
    here.worker_log("g0", "1_0-0").write_text(f"{early}{bar}\n{long}")
    return here


def test_text_before_a_line_of_megabytes_is_reached_by_scrolling(
    browser: Browser, logged: Experiment, plans: Path, tmp_path: Path
) -> None:
    with portal_of(browser, logged.path.parent.parent, plans, tmp_path / "its") as (page, watch):
        page.goto(f"{watch.origin}/#/e/{logged.id}?tab=logs")
        lines = page.get_by_role("region", name="Lines of")
        expect(lines.get_by_text("000299999", exact=False).first).to_be_visible()
        lines.hover()
        early = lines.get_by_text("early line ", exact=False).first
        for _ in range(60):
            if early.count():
                break
            page.mouse.wheel(0, -20_000)
            page.wait_for_timeout(150)
        expect(early).to_be_visible()
        page.mouse.wheel(0, -200_000)
        page.wait_for_timeout(300)
        page.mouse.wheel(0, -200_000)
        expect(lines.get_by_text("early line 0", exact=True)).to_be_visible()
