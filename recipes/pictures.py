"""Take the pictures of the README and the docs: the portal and a report, of an experiment that has ended.

    make demo
    .venv/bin/hpcbench baseline set --name main @last
    .venv/bin/hpcbench submit examples/demo/plan.yaml --wait --set run_tasks.1.generation.temperature=0.7
    .venv/bin/python -m recipes.pictures ~/hpcbench @last

Begin with an empty home, so that the first run asks all samples. It is in all pictures; the second answers
otherwise: its lost samples are in the picture of a comparison. The script needs Chromium and the tests'
requirements, and writes docs/pictures. Look at them before you commit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from hpcbench.experiment.baselines import current
from hpcbench.experiment.layout import Experiment, find
from tests.portal.browsing import CHROMIUM, FLAGS, Running

PLACE = Path(__file__).parent.parent / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}


def main(home: str, experiment: str) -> None:
    """Take them all.

    Args:
        home: folder of the experiments.
        experiment: the second run; the first one is the baseline `main`.
    """
    root = Path(home).expanduser()
    second, baseline = find(root, experiment), current(root, "main")
    assert baseline is not None, "name the first run: hpcbench baseline set --name main"
    first = find(root, baseline.experiment)
    PLACE.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        Running(root, Path(folder), Path(folder, "portal")) as portal,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5)
        page.goto(portal.link())
        page.wait_for_timeout(2000)  # it signs in
        for name in portal_pages(page, portal, first, second):
            page.wait_for_timeout(500)  # the page starts to load
            expect(page.locator("div[role=status][aria-label]")).to_have_count(0, timeout=120_000)
            page.wait_for_timeout(5000)  # images come, figures are drawn
            page.screenshot(path=PLACE / f"{name}.png")
        page.goto((first.report_dir / "report.html").as_uri())
        page.screenshot(path=PLACE / "report.png")
        browser.close()


def portal_pages(
    page: Page, portal: Running, experiment: Experiment, second: Experiment
) -> Iterator[str]:
    """Open one page after the other; the name of its picture."""
    origin = f"http://localhost:{portal.port}"
    page.goto(f"{origin}/#/e/{experiment.id}")
    yield "portal"
    hardest = next(
        (one.name for one in experiment.resolved.run_tasks if "hard" in one.name),
        experiment.resolved.run_tasks[0].name,
    )
    page.goto(f"{origin}/#/e/{experiment.id}/t/{hardest}/samples?at=0")
    yield "sample"
    page.goto(f"{origin}/#/")
    yield "experiments"
    page.goto(f"{origin}/#/e/{experiment.id}/t/{hardest}")
    yield "run-task"
    pair = f"runs={experiment.id}&runs={second.id}&task={hardest}&other={hardest}&by=anls"
    page.goto(f"{origin}/#/compare?{pair}&flip=0")
    yield "comparison"


if __name__ == "__main__":
    main(*sys.argv[1:])
