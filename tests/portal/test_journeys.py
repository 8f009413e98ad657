"""Journeys of users, from the first page to the last click, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from hpcbench.experiment.layout import Experiment
from tests.portal.browsing import Running, Watch, tab


def heading(page: Page, text: str | re.Pattern[str]) -> None:
    """The page that is shown."""
    expect(page.get_by_role("heading", level=1)).to_contain_text(text)


def test_from_the_list_to_a_wrong_sample_whose_link_works_elsewhere(
    browser: Browser, running: Running, watch: Watch, made: list[Experiment]
) -> None:
    with tab(browser, running, watch, permissions=["clipboard-read", "clipboard-write"]) as (
        _,
        page,
    ):
        page.get_by_role("link", name=made[0].id).click()
        heading(page, made[0].resolved.plan.name)
        page.get_by_role("link", name=re.compile(r"vl-00-3b, pages00: anls")).click()
        heading(page, "pages00-vl-00-3b")
        page.get_by_role("link", name="Show wrong samples").click()
        heading(page, "Samples of pages00-vl-00-3b")
        expect(page.get_by_role("checkbox", name="Wrong")).to_be_checked()
        listed = page.get_by_role("listbox", name=re.compile("Samples"))
        expect(listed.get_by_role("option").first).to_be_visible()
        title = page.get_by_role("region", name="Sample", exact=True).get_by_role(
            "heading", level=2
        )
        first = title.inner_text()
        page.keyboard.press("j")
        expect(title).not_to_have_text(first)
        name = title.inner_text()
        expect(listed.get_by_role("option", selected=True)).to_contain_text(name)
        expect(page.get_by_role("img", name=re.compile(re.escape(name)))).to_be_visible()
        page.keyboard.press("c")
        link = page.evaluate("navigator.clipboard.readText()")

        page.go_back()  # moving on to another sample is no step of its own
        heading(page, "pages00-vl-00-3b")
    with tab(browser, running, watch) as (_, elsewhere):
        elsewhere.goto(link)
        there = elsewhere.get_by_role("region", name="Sample", exact=True)
        expect(there.get_by_role("heading", level=2)).to_have_text(name)
        expect(elsewhere.get_by_role("checkbox", name="Wrong")).to_be_checked()


def test_two_runs_beside_each_other_flips_first(page: Page, made: list[Experiment]) -> None:
    for one in made[:2]:
        page.get_by_role("checkbox", name=f"Select {one.id}").check()
    page.get_by_role("link", name=re.compile("Compare [23]")).or_(
        page.get_by_role("button", name=re.compile("Compare"))
    ).first.click()
    heading(page, "Compare")
    table = page.get_by_role("table", name=re.compile("against the baseline"))
    lost = table.get_by_role("button", name=re.compile(r"^lost [1-9]\d*: list")).first
    count = int(lost.inner_text())
    lost.click()
    opened = page.get_by_role("link", name=re.compile("open", re.I))
    expect(opened.first).to_be_visible()
    assert opened.count() == min(2 * count, opened.count())
    page.keyboard.press("f")
    flip = page.get_by_test_id("flip")
    expect(flip.get_by_text(f"1 of {count}", exact=True)).to_be_visible()
    expect(flip.get_by_test_id("image")).to_be_visible()
    expect(flip.get_by_role("region", name="Candidate").get_by_text("anls")).to_be_visible()
    if count > 1:
        page.keyboard.press("j")
        expect(flip.get_by_text(f"2 of {count}", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    opened.last.click()
    heading(page, "Samples of")
    page.go_back()
    heading(page, "Compare")
    expect(table).to_be_visible()


def test_by_keyboard_alone(page: Page, made: list[Experiment]) -> None:
    expect(page.get_by_role("grid", name="Experiments")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type(made[0].id)
    expect(page.get_by_role("option", name=re.compile(made[0].id)).first).to_be_visible()
    page.keyboard.press("Enter")
    heading(page, made[0].resolved.plan.name)
    page.get_by_role("tab", name=re.compile("Run tasks")).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Summary")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_plan_with_a_mistake_is_mended_at_its_line_saved_and_exported(
    page: Page, watch: Watch, plans: Path
) -> None:
    text = json.loads(json.dumps(PLAN))
    (plans / "mistake.yaml").write_text(text)
    page.goto(f"{watch.origin}/#/plans")
    page.get_by_role("link", name="mistake").click()
    editor = page.get_by_role("textbox", name=re.compile("YAML|plan|definition", re.I)).first
    expect(editor).to_be_visible()
    problems = page.get_by_text(re.compile("did you mean 'model'"))
    expect(problems.first).to_be_visible()
    # A key that no schema knows hides no name that no registry knows.
    expect(page.get_by_text("unknown prompt 'answer'").first).to_be_visible()
    expect(
        page.get_by_text(re.compile(r"\b5\b.*modle|modle.*\b5\b|line 5", re.I)).first
    ).to_be_visible()
    page.locator(".cm-content").first.click()
    page.keyboard.press("Control+Home")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    for _ in range(len("modle: tiny-vlm")):
        page.keyboard.press("Backspace")
    page.keyboard.type("model: tiny-vlm")
    page.keyboard.press("Escape")  # the list of what could stand there
    page.keyboard.press("Control+Enter")
    expect(problems).to_have_count(0)
    page.keyboard.press("Control+s")
    expect(page.get_by_text("Saved mistake")).to_be_visible()
    assert "    model: tiny-vlm\n" in (plans / "mistake.yaml").read_text()


PLAN = """\
schema_version: 1
name: mistake
run_tasks:
  - name: one
    modle: tiny-vlm
    ml_task: vqa
    dataset: demo_vqa
    prompt: answer
"""


def test_every_figure_of_an_experiment_is_drawn_and_has_its_table(
    page: Page, watch: Watch, made: list[Experiment]
) -> None:
    page.goto(f"{watch.origin}/#/e/{made[0].id}?tab=charts")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=20_000)
    page.get_by_role("button", name=re.compile("table", re.I)).first.click()
    expect(page.get_by_role("table").first).to_be_visible()


def test_what_is_shown_can_be_taken_away(page: Page, watch: Watch, made: list[Experiment]) -> None:
    task = made[0].resolved.run_tasks[0].name
    page.goto(f"{watch.origin}/#/e/{made[0].id}/t/{task}/samples?wrong=1")
    expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
    shown = int(
        re.sub(r"\D.*", "", page.get_by_role("main").get_by_role("status").first.inner_text())
    )
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("JSON")).or_(
            page.get_by_role("menuitem", name=re.compile("JSON"))
        ).first.click()
    rows = json.loads(Path(download.value.path()).read_text())
    assert len(rows) == shown > 0
