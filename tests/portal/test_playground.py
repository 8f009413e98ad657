"""The playground with a model that is really served: from a dropped page to a plan."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from hpcbench.wrapper.served_models import Announcement
from tests.portal.browsing import Running
from tests.portal.test_accessible import found
from tests.portal.test_journeys import heading
from tests.unit.wrapper.running import KEY, Wrapper, install_scripted
from tests.user import until

DATA = Path(__file__).parents[2] / "examples" / "demo" / "data"


@pytest.fixture
def served(running: Running) -> Iterator[None]:
    """`hpcbench serve tiny-vlm` of the portal's user."""
    with subprocess.Popen(
        [sys.executable, "-m", "hpcbench.cli.main", "serve", "tiny-vlm"],
        env=running.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        yield
        process.terminate()
        assert process.wait(60) == 0
    assert not list((running.home / "serving").iterdir())


@pytest.mark.usefixtures("served")
def test_a_dropped_page_is_answered_and_becomes_a_plan(
    page: Page, plans: Path, tmp_path: Path
) -> None:
    record = json.loads((DATA / "ocr.jsonl").read_text().splitlines()[0])
    scan = tmp_path / "scan.pdf"
    with Image.open(DATA / record["images"][0]) as image:
        # A page of so many points at 150 dpi has the size of the image.
        image.convert("RGB").save(scan, "PDF", resolution=150)
    page.get_by_role("link", name="Playground").click()
    heading(page, "Playground")
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()
    page.get_by_label(re.compile("Drop a page")).set_input_files(scan)
    expect(page.get_by_role("img", name="scan.pdf")).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill("Read all text.")
    page.keyboard.press("Control+Enter")
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("tokens of answer")
    assert record["references"][0].split()[0] in answer.inner_text()
    assert found(page) == []

    page.get_by_role("button", name="Make it a run task").click()
    page.get_by_role("textbox", name="Name of both").fill("tried")
    page.get_by_role("button", name="Save both").click()
    heading(page, "tried")
    expect(page.get_by_role("status").filter(has_text="No errors")).to_be_visible()
    assert "Read all text." in (plans / "registries/prompts/tried.yaml").read_text()
    assert "model: tiny-vlm" in (plans / "tried.yaml").read_text()
    page.get_by_role("radio", name="demo_vqa").check()
    expect(page.get_by_role("textbox", name=re.compile("YAML"))).to_contain_text(
        "dataset: demo_vqa"
    )


def test_a_model_is_started_asked_and_stopped_from_the_page(page: Page, running: Running) -> None:
    """The site of the tests has no Slurm: the job is a process, which the page finds and ends."""
    page.get_by_role("link", name="Playground").click()
    heading(page, "Playground")
    page.get_by_role("button", name="Start a model").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="Model").select_option("tiny-vlm")
    dialog.get_by_role("combobox", name="Time limit").select_option("30")
    expect(dialog).to_contain_text("hpcbench serve tiny-vlm --job --time-limit 00:30:00")
    assert found(page) == []
    dialog.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("a process of this host serves tiny-vlm")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()
    expect(page.get_by_text(re.compile("ends in"))).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill("Read all text.")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("tokens of answer")
    page.get_by_role("button", name="Stop model").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop model").click()
    expect(page.get_by_role("log")).to_contain_text("ended")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    expect(page.get_by_text("No model is served")).to_be_visible()
    until(lambda: not list((running.home / "serving").iterdir()), 60, "the end of its files")
    assert (
        "serve tiny-vlm for 30 min"
        in (running.folder / "state")
        .joinpath("hpcbench", "portal")
        .glob("changes-*.jsonl")
        .__next__()
        .read_text()
    )


@pytest.fixture
def slow(running: Running, tmp_path: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """A served model whose answers take minutes; gives its wrapper's status."""

    async def status() -> dict[str, Any]:
        async with wrapper.control() as control:
            return await control.status()

    async def load() -> None:
        async with wrapper.control() as control:
            await control.loaded(wrapper.body(pieces=["The total "] * 9000, gap=0.1))

    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        wrapper = pool.submit(Wrapper, install_scripted(tmp_path)).result()
        announced = Announcement(running.home, KEY)
        try:
            pool.submit(asyncio.run, load()).result()
            socket = str(wrapper.socket)
            announced.made(model="slow", engine="scripted", socket=socket, address="")
            yield lambda: pool.submit(asyncio.run, status()).result()
        finally:
            announced.end()
            wrapper.close()


def test_the_engine_stops_when_an_answer_is_stopped_or_its_page_is_left(
    page: Page, slow: Callable[[], dict[str, Any]]
) -> None:
    def ask() -> None:
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("region", name="Answer")).to_contain_text("The total")
        assert slow()["in_flight"] == 1

    page.get_by_role("link", name="Playground").click()
    ask()
    page.get_by_role("button", name="Stop", exact=True).click()
    until(lambda: slow()["in_flight"] == 0, 10, "the end of a stopped answer")
    ask()
    page.get_by_role("link", name="Plans").click()
    until(lambda: slow()["in_flight"] == 0, 10, "the end of an answer whose page was left")
    page.get_by_role("link", name="Playground").click()
    ask()
    page.reload()
    until(lambda: slow()["in_flight"] == 0, 10, "the end of an answer whose page was loaded again")
    page.get_by_role("textbox", name="Prompt").fill("Keep this.")
    ask()
    os.kill(slow()["pid"], signal.SIGKILL)
    expect(page.get_by_role("alert")).to_contain_text("broke off")
    assert page.get_by_role("textbox", name="Prompt").input_value() == "Keep this."
