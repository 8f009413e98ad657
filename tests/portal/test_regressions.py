"""The page of regressions: a cell is one run, and its shade says what the legend says."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from hpcbench.comparison import history
from tests.portal.browsing import Watch, portal_of

VALUES = (1.00, 0.60, 0.33, 0.96)


def ran(
    home: Path, at: datetime.datetime, value: float, run_task: str = "invoices", name: str = "anls"
) -> None:
    """One finished experiment in the history."""
    experiment = f"{at:%Y%m%d-%H%M}-nightly-aaaa"
    row = {
        "experiment": experiment, "plan": "nightly", "created": at.timestamp(),
        "state": "done", "run_task": run_task, "model": "m", "dataset": "d", "prompt": "p",
        "kind": "quality", "name": name, "value": value, "low": None,
        "high": None, "n": 10, "higher_is_better": True, "signature": "s", "hpcbench": "0",
        "recorded": at.timestamp(),
    }  # fmt: skip
    path = history.results_dir(home) / f"{experiment}-{run_task}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    history._write(path, [row], path.parent)


@pytest.fixture
def day(tmp_path: Path) -> tuple[Path, list[datetime.datetime]]:
    """A home with four runs of one day, of another month than most."""
    noon = (datetime.datetime.now() - datetime.timedelta(days=9)).replace(
        hour=9, minute=0, second=0
    )
    times = [noon + datetime.timedelta(minutes=20 * number) for number in range(4)]
    for at, value in zip(times, VALUES, strict=True):
        ran(tmp_path / "home", at, value)
    return tmp_path / "home", times


def cells(page: Page) -> Locator:
    """Those of the only row."""
    return page.get_by_test_id("heat").get_by_role("row").nth(1).get_by_role("cell")


def test_each_run_of_a_day_has_a_column_with_its_own_date(
    browser: Browser, day: tuple[Path, list[datetime.datetime]], plans: Path, tmp_path: Path
) -> None:
    home, times = day
    with portal_of(browser, home, plans, tmp_path / "its") as (page, watch):
        page.goto(f"{watch.origin}/#/regressions")
        heads = page.get_by_test_id("heat").get_by_role("columnheader")
        expect(heads).to_have_count(5)
        wanted = [f"{at.day} {at:%b}"[:6].strip() for at in times]
        for number, (at, date) in enumerate(zip(times, wanted, strict=True), start=1):
            expect(heads.nth(number)).to_have_text(re.compile(rf"^{date}\w*\s*{at:%H:%M}$"))


def test_a_shade_says_how_far_a_run_is_from_the_first_of_its_row(
    browser: Browser, day: tuple[Path, list[datetime.datetime]], plans: Path, tmp_path: Path
) -> None:
    with portal_of(browser, day[0], plans, tmp_path / "its") as (page, watch):
        page.goto(f"{watch.origin}/#/regressions")
        expect(
            page.get_by_text("its difference from the first run shown in its row")
        ).to_be_visible()
        expect(cells(page)).to_have_text(["0", "−40", "−67", "−4.0"])
        steps = [cells(page).nth(at).get_attribute("data-step") for at in range(4)]
        assert steps == ["0", "-3", "-3", "-2"]


def test_names_of_one_family_differ_on_a_phone(
    browser: Browser, plans: Path, tmp_path: Path
) -> None:
    home, now = tmp_path / "home", datetime.datetime.now()
    for days in (2, 3):  # a trend has two runs
        for name in ("kie_f1_macro", "kie_f1_micro"):
            ran(home, now - datetime.timedelta(days=days), 0.5, f"kie-{name[-5:]}", name)
    with portal_of(browser, home, plans, tmp_path / "its") as (page, watch):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{watch.origin}/#/regressions")
        names = page.get_by_test_id("heat").locator("th strong")
        expect(names).to_have_count(2)
        assert names.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")


def test_an_empty_page_offers_commands_that_exist(page: Page, watch: Watch) -> None:
    page.goto(f"{watch.origin}/#/regressions?plan=none")
    expect(page.get_by_text("No trend passes the filter")).to_be_visible()
    page.goto(f"{watch.origin}/#/regressions")
    expect(page.get_by_role("heading", level=1)).to_have_text("Regressions")
    expect(page.get_by_label("Run it every night")).to_have_text(
        "hpcbench cron install plan.yaml --at '0 2 * * *'"
    )
