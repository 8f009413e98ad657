"""Texts as people read them: empty answers, long ones, the summary, logs, and names in the palette."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from hpcbench.cli.main import main
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import portal_of
from tests.unit import small

LONG = "word " * 6_000
ANSWERS = ("", LONG, "7")
IDS = ("20261120-1432-plan-aaaa", "20261121-1432-plan-bbbb")
LOG = "2026-11-20 started with password=hunter2-and-more\n"


@pytest.fixture
def two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[Experiment]:
    """Two experiments with a run task of one name, each with its report."""
    made = []
    for name in IDS:
        records = [small.record(number, references=["word 7"]) for number in range(len(ANSWERS))]
        data = small.write_dataset(tmp_path / name, records)
        Image.new("L", (40, 30), 200).save(data / "p.png")
        task = small.run_task("vqa-hard", dataset={"source": str(data)})
        here = small.submitted(tmp_path, small.resolved(task), len(records), name)
        small.describe(here)
        answers = [small.response(f"s{number}", text) for number, text in enumerate(ANSWERS)]
        small.write_attempt(here, 0, 1, answers, run_task=task.name)
        evaluate(here)
        assert main(["report", str(here.path), "--format", "markdown"]) == 0
        here.workers_dir.mkdir(exist_ok=True)
        (here.workers_dir / "g0.7_0-0.log").write_text(LOG)
        made.append(here)
    capsys.readouterr()
    return made


@pytest.fixture
def opened(
    browser: Browser, two: list[Experiment], plans: Path, tmp_path: Path
) -> Iterator[tuple[Page, str]]:
    """A page, signed in at a portal of these two, and its origin."""
    with portal_of(browser, two[0].path.parent.parent, plans, tmp_path / "its") as (page, watch):
        yield page, watch.origin


def test_texts_are_shown_as_what_they_are(opened: tuple[Page, str], two: list[Experiment]) -> None:
    page, origin = opened
    here = two[0].id
    sample = page.get_by_role("region", name="Sample", exact=True)

    page.goto(f"{origin}/#/e/{here}/t/vqa-hard/samples?at=0")
    expect(sample.get_by_text("empty", exact=True).first).to_be_visible()
    assert sample.locator("del").count() == 0, "the reference is not struck out"

    page.goto(f"{origin}/#/e/{here}/t/vqa-hard/samples?at=1")
    expect(
        sample.get_by_text(re.compile(r"more characters at the end are not compared"))
    ).to_be_visible()
    sample.get_by_role("button", name="Whole answer").click()
    expect(sample.get_by_text("are not compared")).to_have_count(0)

    page.goto(f"{origin}/#/e/{here}?tab=summary")
    summary = page.get_by_role("region", name="Results")
    expect(summary).to_be_visible()
    assert not re.search(r"\*\*|`|^\||\]\(", summary.inner_text(), re.MULTILINE), "no raw Markdown"

    page.goto(f"{origin}/#/e/{here}?tab=logs")
    line = page.get_by_text(re.compile("started with password="))
    expect(line.first).to_be_visible()
    assert "hunter2" not in page.locator("body").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_palette_says_of_which_experiment_each_run_task_is(
    opened: tuple[Page, str], width: int
) -> None:
    page, _ = opened
    page.set_viewport_size({"width": width, "height": 844})
    page.keyboard.press("Control+k")
    page.keyboard.type("vqa-hard")
    options = page.get_by_role("option", name=re.compile("vqa-hard"))
    for name in IDS:
        own = options.filter(has_text=name)
        expect(own.first).to_be_visible()
        box = own.first.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
