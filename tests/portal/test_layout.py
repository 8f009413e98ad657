"""Pages keep within the window, and their parts beside one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import Running, Watch, tab
from tests.portal.walk import pages, plan_pages, visit

WIDTHS = {1440: 900, 390: 844}
"""Width → height of the window, px."""

MISTAKE = """\
schema_version: 1
name: narrow
run_tasks:
  - name: one
    modle: tiny-vlm
    ml_task: vqa
    dataset: demo_vqa
    prompt: answer
"""

FAULTS = Path(__file__).with_name("layout.js").read_text()
"""Finds what of a page reaches past its end, and what of it lies over something else."""


@pytest.fixture
def addresses(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment], plans: Path
) -> dict[str, str]:
    """All pages, with those of a plan that has a mistake."""
    (plans / "narrow.yaml").write_text(MISTAKE)
    with tab(browser, running, watch) as (_, page):
        return pages(made) | plan_pages(page, watch.origin, "narrow")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_past_its_end_and_no_parts_overlap(
    browser: Browser, running: Running, watch: Watch, addresses: dict[str, str], width: int
) -> None:
    watch.expects_faults = True  # some pages show what is not there
    wrong: dict[str, list[str]] = {}
    with tab(browser, running, watch, reduced_motion="reduce") as (_, page):
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        for name, address in addresses.items():
            visit(page, watch.origin, address)
            if found := page.evaluate(FAULTS):
                wrong[name] = found
    assert not wrong, "\n".join(f"{name}: {line}" for name, some in wrong.items() for line in some)
