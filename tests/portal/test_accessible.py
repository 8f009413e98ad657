"""Every page held against WCAG 2.2 AA by axe, light and dark, at full size and as large as at 200 %."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import Running, Watch, tab

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def pages(made: list[Experiment]) -> dict[str, str]:
    """Every page, and each of its parts that looks different; name → address."""
    first, other, running = made[0].id, made[1].id, made[-1].id
    task = made[0].resolved.run_tasks[0].name
    whole, one = f"/e/{first}", f"/e/{first}/t/{task}"
    found = {"experiments": "/", "experiment": whole, "running": f"/e/{running}", "run-task": one}
    for name in ("summary", "charts", "resources", "logs", "configuration", "provenance", "report"):
        found[f"experiment-{name}"] = f"{whole}?tab={name}"
    found |= {
        "samples": f"{one}/samples?at=3",
        "compare": f"/compare?runs={first}&runs={other}",
        "compare-speed": f"/compare?runs={first}&runs={other}&tab=speed",
        "regressions": "/regressions",
        "plans": "/plans",
        "cluster": "/cluster",
        "settings": "/settings",
    }
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("zoom", [1, 2])
def test_axe_finds_nothing_wrong_with_any_page(
    browser: Browser,
    running: Running,
    watch: Watch,
    made: list[Experiment],
    theme: Literal["light", "dark"],
    zoom: int,
) -> None:
    wrong: dict[str, list[Any]] = {}
    with tab(browser, running, watch, color_scheme=theme, reduced_motion="reduce") as (_, page):
        page.set_viewport_size({"width": 1280 // zoom, "height": 900 // zoom})
        for name, address in pages(made).items():
            page.goto(
                "about:blank"
            )  # a page of its own: what fades from one to the next is neither
            page.goto(f"{watch.origin}/#{address}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.wait_for_load_state("networkidle")
            expect(page.locator("main [aria-busy=true]")).to_have_count(0)
            found = Axe().run(page, options={"runOnly": RULES}).response["violations"]
            told = [
                f"{one['id']} ({one['impact']}): {node['html'][:200]} {node['failureSummary']}"
                for one in found
                for node in one["nodes"][:3]
            ]
            if told:
                wrong[name] = told
    assert not wrong, "\n".join(
        f"{name}: {line}" for name, lines in wrong.items() for line in lines
    )
