"""The pages of an agent's samples and run task: turns, plan, images, charts; axe finds nothing wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hpcbench.agents.loop import End
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from tests.portal.browsing import Running, Watch, tab
from tests.portal.test_accessible import COLOURS, LAYOUT, PLACES, found, resized
from tests.portal.walk import settled, visit
from tests.unit.agents.trajectories import Story, write_trajectories
from tests.unit.portal.asking import png
from tests.unit.small import describe, experiment, record

SHOTS = os.environ.get("HPCBENCH_SHOTS")
"""Folder for pictures of the pages, for people."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """Eight samples of an agent: answered, ended by a limit, and at work."""
    home = tmp_path_factory.mktemp("agents")
    here = experiment(home, [record(n) for n in range(8)], shard_size=8, agent=True)
    (home / "data" / "p.png").write_bytes(png(600, 400))
    works = [
        Story(f"s{n}")
        .does(
            ("create_plan", {"steps": ["Find the total", "Add the tax"]}, "ok", 0),
            text="I plan first.",
            agent="reader",
        )
        .does(
            ("crop", {"image": 1, "box": [0, 0, 500, 500]}, "ok", 1),
            ("update_plan", {"step": 1, "status": "done"}, "ok", 0),
            agent="reader",
        )
        .does(
            ("hand_over", {"agent": "checker"}, "ok", 0),
            ("zoom", "{", "arguments", 0),
            agent="reader",
        )
        .says(str(n) if n % 2 else "no", agent="checker")
        for n in range(5)
    ]
    works += [Story("s5").does(("crop", {}, "time", 0)), Story("s6").says("6")]
    limit = End("limit_calls", "", "1 calls", "truncated")
    lines = [line for one in works for line in one.lines]
    answers = [one.response(limit if one.sample == "s5" else None) for one in works]
    going = Story("s7").does(("crop", {}, "ok", 1))
    write_trajectories(here, 0, 1, [*lines, *going.lines], answers, "drained")
    describe(here)
    manifest = json.loads(here.manifest_file.read_text())
    write_json(here.manifest_file, {**manifest, "created": "2026-11-20T14:32:00+0000"})
    here = Experiment(here.path)
    evaluate(here)
    return here


@pytest.fixture(scope="module")
def portal(agents: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    plans, own = tmp_path_factory.mktemp("plans"), tmp_path_factory.mktemp("its")
    with Running(agents.path.parent.parent, plans, own) as running:
        yield running


def test_a_sample_s_turns_and_the_run_task_s_charts(
    browser: Browser, portal: Running, agents: Experiment
) -> None:
    watch = Watch(f"http://localhost:{portal.port}")
    below = f"/e/{agents.id}/t/rt"
    wrong: list[str] = []
    with tab(browser, portal, watch, color_scheme="light", reduced_motion="reduce") as (_, page):

        def checked(name: str) -> None:
            for theme, size in (("light", "wide"), ("dark", "wide"), ("light", "narrow")):
                page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
                resized(page, size)
                settled(page)
                rules = () if (theme, size) == ("light", "wide") else COLOURS + PLACES
                problems = found(page, rules) + (page.evaluate(LAYOUT) if theme == "light" else [])
                wrong.extend(f"{name}, {theme}, {size}: {one}" for one in problems)
                if SHOTS:
                    page.screenshot(path=Path(SHOTS) / f"{name}-{theme}-{size}.png", full_page=True)
            page.emulate_media(color_scheme="light")
            resized(page, "wide")

        visit(page, watch.origin, f"{below}/samples?at=1")
        turns = page.get_by_test_id("turns")
        expect(turns.get_by_role("listitem").filter(has_text="I plan first.").first).to_be_visible()
        expect(page.get_by_test_id("plan")).to_contain_text("Add the tax")
        expect(page.get_by_test_id("exit")).to_have_text("answered")
        image = page.get_by_role("button", name="Image 2, made by crop: larger")
        image.focus()
        page.keyboard.press("Enter")  # by the keyboard alone
        expect(page.get_by_role("button", name="Image 2, made by crop: smaller")).to_be_visible()
        shown = page.get_by_role("img", name="Image 2, made by crop")
        assert shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 60
        # Its head stays in view, over what is scrolled beneath.
        page.get_by_role("region", name="Sample", exact=True).evaluate(
            "panel => panel.scrollTo(0, 0)"
        )
        checked("sample")
        visit(page, watch.origin, f"{below}/samples?at=5")
        expect(page.get_by_test_id("exit")).to_contain_text("1 calls")
        visit(page, watch.origin, f"{below}/samples?at=7")
        expect(page.get_by_test_id("exit")).to_have_text("not ended")
        visit(page, watch.origin, f"{below}?tab=charts&group=agents")
        expect(page.get_by_test_id("agent-work")).to_contain_text("limit_calls")
        # A chart is drawn once it is near the window.
        page.get_by_role("group", name="Kinds of charts").scroll_into_view_if_needed()
        page.mouse.move(640, 400)
        page.mouse.wheel(0, 4000)
        expect(page.get_by_text("Which step follows which: rt").first).to_be_visible()
        checked("run-task")
        if SHOTS:
            page.emulate_media(color_scheme="dark")
            page.get_by_text("Which step follows which: rt").first.scroll_into_view_if_needed()
            settled(page)
            page.screenshot(path=Path(SHOTS) / "flow-dark.png")
    watch.check()
    assert not wrong, "\n".join(wrong)
