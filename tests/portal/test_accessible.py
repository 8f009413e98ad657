"""Every page and every state of it passes all rules of axe but WCAG's AAA ones, and keeps within the window.

The rules include best practices and those that axe calls experimental: a control's name contains its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from hpcbench.experiment.layout import Experiment
from tests.campaign import FULL, first
from tests.portal.browsing import Running, Watch, tab
from tests.portal.test_hostile import evil
from tests.portal.walk import pages, plan_pages, settled, visit

__all__ = ["evil"]

RULES = """() => axe.getRules()
  .filter((rule) => !rule.tags.some((tag) => /^wcag2+aaa$/.test(tag)))
  .map((rule) => rule.ruleId)"""

COLOURS = ("color-contrast", "link-in-text-block")
"""Rules that see another theme."""

PLACES = ("scrollable-region-focusable", "target-size", "meta-viewport")
"""Rules that see another size of the window."""

LAYOUT = Path(__file__).with_name("layout.js").read_text()
"""Finds parts of a page that reach past its end, and parts that lie over others."""

FRAMES = """() => new Promise((done) => {
  let left = 4;  // a chart is drawn again two frames after its place has another width
  const frame = () => (left-- > 0 ? requestAnimationFrame(frame) : done());
  frame();
})"""
"""Waits until what follows the window's size has followed."""

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}

VIEWS: tuple[tuple[Literal["light", "dark"], str], ...] = (
    ("light", "wide"), ("dark", "wide"), ("light", "narrow"),
)  # fmt: skip
"""Themes and sizes in which a page is seen."""

MISTAKE = "schema_version: 1\nname: axe\nrun_tasks:\n  - name: one\n    modle: tiny-vlm\n"


KNOWN: list[str] = []
"""Rules of the axe that is installed, once it has been asked."""


def every_rule(page: Page) -> list[str]:
    """All rules but WCAG's AAA ones."""
    if not KNOWN:
        Axe().run(page, options={"runOnly": ["document-title"]})  # loads it
        KNOWN.extend(page.evaluate(RULES))
    return KNOWN


def found(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """Faults that axe finds on a page."""
    options = {
        "runOnly": {"type": "rule", "values": rules or every_rule(page)},
        "resultTypes": ["violations"],  # what passes is much, and takes most of the time
    }
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:200]} {node['failureSummary']}"
        for one in Axe().run(page, options=options).response["violations"]
        for node in one["nodes"][:3]
    ]


@pytest.fixture
def wrong() -> Iterator[dict[str, list[str]]]:
    """Findings by state: none may be left at the end."""
    known: dict[str, list[str]] = {}
    yield known
    reported = [f"{name}: {line}" for name, lines in known.items() for line in lines]
    assert not reported, "\n".join(reported)


def test_axe_finds_nothing_wrong_with_any_page_and_no_parts_overlap(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment], plans: Path,
    wrong: dict[str, list[str]],
) -> None:  # fmt: skip
    watch.expects_faults = True  # some pages show what is not there
    (plans / "axe.yaml").write_text(MISTAKE)
    with tab(browser, running, watch, color_scheme="light", reduced_motion="reduce") as (_, page):
        every = pages(made) | plan_pages(page, watch.origin, "axe")
        for place, (name, address) in enumerate(every.items()):
            # Pages share their parts: outside a campaign each is seen one way, by all rules.
            views = list(VIEWS) if FULL else [VIEWS[place % len(VIEWS)]]
            theme, size = views[0]
            resized(page, size)
            page.emulate_media(color_scheme=theme)
            visit(page, watch.origin, address)
            wrong[f"{name}, {theme}, {size}"] = found(page) + page.evaluate(LAYOUT)
            for theme, size in views[1:]:
                resized(page, size)
                page.emulate_media(color_scheme=theme)
                settled(page)
                seen = found(page, COLOURS + PLACES) + page.evaluate(LAYOUT)
                wrong[f"{name}, {theme}, {size}"] = seen


def resized(page: Page, size: str) -> None:
    """Give the window a size."""
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate(FRAMES)


def states(made: list[Experiment]) -> dict[str, tuple[str, Callable[[Page], None]]]:
    """Dialogs and menus of pages: name → address, and what opens it."""
    first = made[0].id
    samples = f"/e/{first}/t/{made[0].resolved.run_tasks[0].name}/samples?at=3"

    def button(name: str | re.Pattern[str]) -> Callable[[Page], None]:
        return lambda page: page.get_by_role("button", name=name).first.click()

    def palette(page: Page) -> None:
        page.keyboard.press("Control+k")
        page.keyboard.type("pages00")
        expect(page.get_by_role("option").nth(3)).to_be_visible()

    def confirmation(page: Page) -> None:
        button("Actions")(page)
        button("Score again")(page)
        expect(page.get_by_role("dialog")).to_be_visible()

    return {
        "palette": (f"/e/{first}", palette),
        "keys": ("/", lambda page: page.keyboard.press("?")),
        "filter": ("/", button("State")),
        "views": ("/", button("Views")),
        "columns": ("/", button("Columns")),
        "export": ("/", button("Export")),
        "commands": (f"/e/{first}", button("Commands")),
        "actions": (f"/e/{first}", button("Actions")),
        "confirmation": (f"/e/{first}", confirmation),
        "another run": (f"/e/{first}?tab=config", button("Another run")),
        "note": (samples, button("Note")),
        "picker of runs": (f"/compare?runs={first}", button("Add a run")),
        "start of a model": ("/playground", button("Start a model")),
        "new token": ("/settings", button("New token")),
        "more of a plan": ("/plans/new?kind=plans", button("More")),
        "name of a plan": ("/plans/new?kind=plans", button(re.compile("^Save"))),
    }


@pytest.mark.parametrize(
    ("theme", "size"),
    first(1, [("light", "narrow"), ("dark", "wide"), ("light", "wide"), ("dark", "narrow")]),
)
def test_axe_finds_nothing_wrong_with_what_opens(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment],
    wrong: dict[str, list[str]], theme: Literal["light", "dark"], size: str,
) -> None:  # fmt: skip
    with tab(browser, running, watch, color_scheme=theme, reduced_motion="reduce") as (_, page):
        resized(page, size)
        for name, (address, opens) in states(made).items():
            visit(page, watch.origin, address)
            opens(page)
            wrong[name] = found(page)


@pytest.mark.parametrize("way", ["loading", "failing"])
def test_axe_finds_nothing_wrong_with_pages_that_wait_or_fail(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment],
    wrong: dict[str, list[str]], way: str,
) -> None:  # fmt: skip
    watch.expects_faults = True

    def answer(route: Route) -> None:
        if "/session" in route.request.url or "/events" in route.request.url:
            route.fallback()
        elif way == "failing":
            fault = {"code": "broken", "error": "it broke", "remedy": "mend it", "id": "abc"}
            route.fulfill(status=500, json=fault)

    first = made[0].id
    one = f"/e/{first}/t/{made[0].resolved.run_tasks[0].name}"
    addresses = [
        "/", f"/e/{first}", one, f"{one}/samples", f"/compare?runs={first}&runs={made[1].id}",
        "/regressions", "/metrics", "/stored/none", "/plans", "/plans/some", "/cluster", "/settings",
    ]  # fmt: skip
    with tab(browser, running, watch, reduced_motion="reduce") as (_, page):
        page.route("**/api/v1/**", answer)
        # Pages wait and fail by parts that they share: outside a campaign every second one does each.
        for address in addresses if FULL else addresses[way == "failing" :: 2]:
            page.goto("about:blank")
            page.goto(f"{watch.origin}/#{address}")
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            if way == "failing":
                expect(page.get_by_role("alert").first).to_be_visible()
            wrong[address] = found(page)


def test_axe_finds_nothing_wrong_with_hostile_samples_and_signing_in(
    browser: Browser, evil: Experiment, plans: Path, tmp_path: Path, wrong: dict[str, list[str]]
) -> None:
    portal = Running(evil.path.parent.parent, plans, tmp_path / "its")
    with (
        portal,
        tab(browser, portal, watch := Watch(f"http://localhost:{portal.port}")) as (context, page),
    ):
        watch.expects_faults = True
        task = f"/e/{evil.id}/t/{evil.resolved.run_tasks[0].name}"
        for place in (0, 5, 8):
            visit(page, watch.origin, f"{task}/samples?at={place}&raw=1")
            wrong[f"sample {place}"] = found(page)
        visit(page, watch.origin, f"{task}?tab=groups")
        wrong["groups"] = found(page)
        context.clear_cookies()
        page.goto(f"{watch.origin}/#/settings")
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        wrong["sign in"] = found(page)


def test_axe_finds_nothing_wrong_with_pages_for_text_browsers(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment], wrong: dict[str, list[str]]
) -> None:  # fmt: skip
    watch.expects_faults = True
    for theme in ("light", "dark") if FULL else ("dark",):
        context = browser.new_context(color_scheme=theme)
        page = context.new_page()
        page.goto(f"{watch.origin}/plain/login")
        wrong[f"{theme}: login"] = found(page)
        page.get_by_label("Link or code").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        wrong[f"{theme}: refused"] = found(page)
        page.get_by_label("Link or code").fill(running.link())
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        wrong[f"{theme}: experiments"] = found(page)
        page.get_by_role("link", name=made[0].id).click()
        expect(page.get_by_role("heading", name=made[0].id)).to_be_visible()
        wrong[f"{theme}: experiment"] = found(page)
        page.get_by_role("link", name="Reload").click()
        expect(page.get_by_role("heading", name=made[0].id)).to_be_visible()
        assert page.locator("meta[http-equiv]").count() == 0
        page.goto(f"{watch.origin}/plain/")  # a slash too many is no reason to show nothing
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        context.close()
