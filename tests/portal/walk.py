"""The addresses of all pages, with each of their parts that looks different."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from hpcbench.experiment.layout import Experiment

EXPERIMENT_TABS = ("summary", "charts", "resources", "logs", "config", "provenance", "report")
RUN_TASK_TABS = ("charts", "groups", "resources", "logs", "commands")
COMPARE_TABS = ("speed", "config", "charts")
PLAN_TABS = ("problems", "tasks", "estimate", "commands", "changes")


def pages(made: list[Experiment]) -> dict[str, str]:
    """Every page of experiments that were made for the tests; name → address."""
    first, other, running = made[0].id, made[1].id, made[-1].id
    task = made[0].resolved.run_tasks[0].name
    whole, one = f"/e/{first}", f"/e/{first}/t/{task}"
    both = f"/compare?runs={first}&runs={other}"
    found = {
        "experiments": "/",
        "no experiment found": "/?text=nothing-is-called-that",
        "experiment": whole,
        "running experiment": f"/e/{running}",
        "no such experiment": "/e/none",
        "run task": one,
        "running run task": f"/e/{running}/t/{task}",
        "no such run task": f"/e/{first}/t/none",
        "dataset objects as a table": f"{one}?table=1",
        "samples": f"{one}/samples",
        "sample": f"{one}/samples?at=3",
        "raw response of a sample": f"{one}/samples?at=3&raw=1",
        "no sample found": f"{one}/samples?text=nothing-holds-that",
        "nothing to compare": "/compare",
        "comparison": both,
        "whole comparison": f"{both}&all=1",
        "flipped samples": f"{both}&task={task}&other={task}&by=anls&change=both_right",
        "a flipped sample": f"{both}&task={task}&other={task}&by=anls&change=both_right&flip=0",
        "regressions": "/regressions?since=all",
        "no regressions": "/regressions?text=nothing-is-called-that",
        "metrics": "/metrics",
        "plans": "/plans",
        "other definitions": "/plans?kind=models",
        "new plan": "/plans/new?kind=plans",
        "playground": "/playground",
        "cluster": "/cluster",
        "settings": "/settings",
        "no such page": "/nowhere",
    }
    found |= {f"{name} of an experiment": f"{whole}?tab={name}" for name in EXPERIMENT_TABS}
    found |= {f"{name} of a run task": f"{one}?tab={name}" for name in RUN_TASK_TABS}
    found |= {f"{name} of a comparison": f"{both}&tab={name}" for name in COMPARE_TABS}
    return found


def plan_pages(page: Page, origin: str, name: str) -> dict[str, str]:
    """The page of a definition of the user's, with each of its tabs; name → address."""
    page.goto(f"{origin}/#/plans")
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("tab", name=re.compile("Problems"))).to_be_visible()
    address = page.url.partition("#")[2].partition("?")[0]
    return {f"{tab} of a plan": f"{address}?tab={tab}" for tab in PLAN_TABS}


def visit(page: Page, origin: str, address: str) -> None:
    """Open a page of its own, which has a heading, and wait until all of it is there."""
    page.goto("about:blank")  # what fades from one page to the next is neither
    page.goto(f"{origin}/#{address}")
    settled(page)


def settled(page: Page) -> None:
    """Wait until a page has its heading and all that it asks for."""
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.wait_for_load_state("networkidle")
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)
