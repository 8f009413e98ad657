"""Answers, names and logs that want to be more than text."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import portal_of
from tests.unit import small

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)>",
    "[click](javascript:alert(4))",
    "![x](https://evil.example/leak.png)",
    '"><iframe srcdoc="<script>parent.alert(5)</script>">',
    "{{constructor.constructor('alert(6)')()}}",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b[31mred",
    "\u202egnp.exe",
    "=cmd|'/C calc'!A0",
    "\x00\x07",
)


@pytest.fixture
def evil(tmp_path: Path) -> Experiment:
    """An experiment all of whose texts are attacks."""
    records = [
        small.record(number, references=[text], metadata={"doc_type": text})
        for number, text in enumerate(HOSTILE)
    ]
    here = small.experiment(tmp_path, records, shard_size=len(HOSTILE))
    for page in tmp_path.rglob("*.png"):
        Image.new("L", (40, 30), 200).save(page)
    answers = [small.response(f"s{number}", text) for number, text in enumerate(HOSTILE)]
    small.write_attempt(here, 0, 1, answers)
    evaluate(here)
    return here


def test_hostile_text_stays_text_on_every_page(
    browser: Browser, evil: Experiment, plans: Path, tmp_path: Path
) -> None:
    with portal_of(browser, evil.path.parent.parent, plans, tmp_path / "its") as (page, watch):
        task = evil.resolved.run_tasks[0].name
        for place, text in enumerate(HOSTILE):
            page.goto(f"{watch.origin}/#/e/{evil.id}/t/{task}/samples?at={place}")
            sample = page.get_by_role("region", name="Sample", exact=True)
            expect(sample.get_by_role("heading", level=2)).to_have_text(f"s{place}")
            assert "\u202e" not in page.locator("body").inner_text()
            if text == "\u202egnp.exe":
                expect(sample.get_by_text("⟨U+202E⟩gnp.exe", exact=True).first).to_be_visible()
            if text.isprintable():
                expect(sample.get_by_text(text, exact=True).first).to_be_visible()
        for address in (
            f"/e/{evil.id}",
            f"/e/{evil.id}/t/{task}?tab=groups",
            f"/e/{evil.id}?tab=logs",
        ):
            page.goto(f"{watch.origin}/#{address}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.locator("main iframe, main script, main object, main embed").count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
