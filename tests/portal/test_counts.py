"""One vocabulary of counts on every page; no score without answers; marks on speed that is not valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.schema.records import Response
from tests.portal.browsing import portal_of
from tests.unit import small

ASKED = 30
READ, UNREADABLE, BAD, NO_ANSWER = 16, 4, 8, 2
COUNTS = {"asked": 30, "responded": 20, "ok": 16, "unreadable": 4, "failed": 10}


def _mixed(number: int) -> Response:
    """16 answers that are read, 4 that are not, 8 bad requests, 2 without an answer."""
    name = f"s{number}"
    if number < READ:
        return small.response(name, json.dumps({"total": str(number)}))
    if number < READ + UNREADABLE:
        return small.response(name, "The total cannot be seen.")
    if number < READ + UNREADABLE + BAD:
        return small.response(name, None, outcome="invalid", error="the image is broken")
    return small.response(name, None)


def _made(folder: Path, name: str) -> Experiment:
    """Three run tasks: one without a failure, one with some of each, one whose model never loaded."""
    records = [
        small.record(number, fields={"keys": "total"}, references=[{"total": str(number)}])
        for number in range(ASKED)
    ]
    data = small.write_dataset(folder / "data", records)
    Image.new("L", (40, 30), 200).save(data / "p.png")
    own = {"plugin": "kie", "metrics": ("kie_f1_micro",), "dataset": {"source": str(data)}}
    tasks = [
        small.run_task(one, model={"name": one}, **own)  # type: ignore[arg-type]
        for one in ("whole", "mixed", "never")
    ]
    here = small.submitted(folder, small.resolved(*tasks, shard_size=ASKED), ASKED, name)
    small.describe(here)
    whole = [small.response(f"s{one}", json.dumps({"total": str(one)})) for one in range(ASKED)]
    mixed = [_mixed(one) for one in range(ASKED)]
    never = [
        small.response(f"s{one}", None, error="the model was never loaded") for one in range(ASKED)
    ]
    for task, answers in (("whole", whole), ("mixed", mixed), ("never", never)):
        small.write_attempt(here, 0, 1, answers, run_task=task)
    evaluate(here)
    # A client that is too slow cannot be had on demand: its mark is written.
    reported = json.loads(here.performance_file.read_text())
    reported["run_tasks"]["mixed"]["valid"] = False
    write_json(here.performance_file, reported)
    return here


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Experiment]:
    """Two experiments with the same samples and answers."""
    folder = tmp_path_factory.mktemp("counts")
    return _made(folder, "20261120-1432-plan-aaaa"), _made(folder, "20261121-1432-plan-bbbb")


def _facts(page: Page) -> dict[str, str]:
    """Tiles at a glance: label → all text in it."""
    tiles = page.get_by_label("At a glance").locator("> div")
    return {one.locator("dt").inner_text(): one.inner_text() for one in tiles.all()}


def test_every_page_counts_the_same(
    browser: Browser, two: tuple[Experiment, Experiment], plans: Path, tmp_path: Path
) -> None:
    with portal_of(browser, two[0].path.parent.parent, plans, tmp_path / "its") as (page, watch):
        here = two[0].id
        page.goto(f"{watch.origin}/#/e/{here}/t/mixed")
        panel = page.get_by_role("region", name="Samples by outcome")
        expect(panel).to_be_visible()
        reported = dict(
            re.findall(r"^(\w+)\n(\d+)$", panel.locator("dl").inner_text(), re.MULTILINE)
        )
        assert {name: int(value) for name, value in reported.items()} == COUNTS
        facts = _facts(page)
        assert "20 responded (16 ok, 4 unreadable), 10 failed" in facts["Samples"]
        assert "53.3 %" in facts["Coverage"]
        assert "not valid" in facts["Latency"]
        outcomes = panel.locator("ul").first.inner_text()
        assert "invalid" not in outcomes
        assert re.search(r"bad request\s+8\b", outcomes)

        page.goto(f"{watch.origin}/#/e/{here}")
        expect(page.get_by_role("heading", level=1)).to_have_text("plan")
        facts = _facts(page)
        assert "50 responded (46 ok, 4 unreadable), 40 failed" in facts["Samples"]
        assert "51.1 %" in facts["Coverage"]
        (score,) = (text for label, text in facts.items() if label.startswith("kie_f1"))
        assert "mean of 2 of 3 run tasks; the others have no value" in score

        page.goto(f"{watch.origin}/#/e/{here}?tab=tasks")
        row = page.get_by_role("row").filter(has_text="mixed").last
        expect(row).to_contain_text("53.3 %")
        expect(row.get_by_label(re.compile("client was too slow")).first).to_be_visible()
        never = page.get_by_role("row").filter(has_text="never").last
        expect(never).not_to_contain_text("0…")

        page.goto(f"{watch.origin}/#/e/{here}/t/never")
        expect(page.get_by_role("heading", level=1)).to_have_text("never")
        tile = page.get_by_label("At a glance").locator("> div").filter(has_text="kie_f1_micro")
        expect(tile).to_contain_text("–")
        score = tile.inner_text()
        assert not re.search(r"\d\.\d", score), "no value, no interval"

        page.goto(f"{watch.origin}/#/compare?runs={here}&runs={two[1].id}&tab=speed")
        careful = page.get_by_text("of mixed cannot be compared")
        expect(careful.first).to_contain_text("client was too slow")


def test_the_report_and_the_command_line_count_as_the_pages_do(
    two: tuple[Experiment, Experiment],
) -> None:
    from hpcbench.cli.main import main

    assert main(["report", str(two[0].path), "--format", "markdown"]) == 0
    text = (two[0].report_dir / "report.md").read_text()
    assert "90 asked: 50 responded (46 ok, 4 unreadable), 40 failed; coverage 51.1 %" in text
    row = next(line for line in text.splitlines() if line.startswith("| mixed | 30 |"))
    assert [cell.strip() for cell in row.split("|")[2:8]] == ["30", "20", "16", "4", "10", "0"]
    assert "8 bad request" in row
    assert "client-bound" in next(
        line for line in text[text.index("## Speed") :].splitlines() if "mixed" in line
    )
