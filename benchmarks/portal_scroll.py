"""A list of a million samples under the wheel and the thumb, in a real browser.

A run task of a million samples is made, and a real portal shows its sample browser. The wheel is turned for
some seconds while the page notes when each of its frames begins: a frame that is late is what people see as
jank. The floor is the same page without scrolling, since headless Chromium draws on the processor, on
which the portal works, too. Then the thumb is dragged to places all over the list, and the time counts until
all rows in view are there: fetched, and drawn in the frame after. The list rests 90 ms before it asks.

    python benchmarks/portal_scroll.py [--turns 300] [--places 40]

Chromium is that of the tests (`HPCBENCH_CHROMIUM`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright  # noqa: E402

from tests.portal.browsing import CHROMIUM, FLAGS, Running, Watch, opened  # noqa: E402
from tests.unit.portal.test_portal_million import COUNT, ID, make  # noqa: E402

JANK_MS = 50.0
"""Three frames at 60 Hz: the browsers' own measure of a long task."""

VIEWS = {"in the dataset's order": "", "wrong, slowest first": "?wrong=1&sort=latency&order=desc"}

NOTE = """() => {
  window.begins = [];
  const next = (time) => { window.begins.push(time); window.turning = requestAnimationFrame(next); };
  window.turning = requestAnimationFrame(next);
}"""
"""Notes when each frame begins, ms."""

NOTED = "() => { cancelAnimationFrame(window.turning); return window.begins; }"

JUMP = """async (share) => {
  const list = document.querySelector('[data-testid="samples"]');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const since = performance.now(), before = list.querySelector("[data-number]").dataset.number;
  list.scrollTop = share * (list.scrollHeight - list.clientHeight);
  for (;;) {
    await frame();
    const rows = [...list.querySelectorAll("[data-number]")];
    const { top, bottom } = list.getBoundingClientRect();
    const seen = rows.filter((row) => {
      const box = row.getBoundingClientRect();
      return box.bottom > top && box.top < bottom;
    });
    const there = seen.length && seen.every((row) => row.ariaBusy === "false");
    if (there && rows[0].dataset.number !== before) {
      await frame();
      return [performance.now() - since, Number(seen[0].dataset.number)];
    }
  }
}"""
"""Drags the thumb to a share of the list; ms until its rows are drawn, and the first row's number."""


def frames(page: Page, turns: int) -> list[float]:
    """Milliseconds between frames, while the wheel is turned so often, or for as long as that takes."""
    page.evaluate(NOTE)
    for _ in range(abs(turns)):
        if turns > 0:
            page.mouse.wheel(0, 240)
        time.sleep(0.016)
    begins: list[float] = page.evaluate(NOTED)
    return [after - before for before, after in zip(begins, begins[1:], strict=False)]


def reported(name: str, values: list[float]) -> None:
    """Print a distribution."""
    ordered = sorted(values)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    print(f"{name:<34}{len(values):>6}{p50:>9.1f}{p99:>9.1f}{ordered[-1]:>9.1f}")


def measure(page: Page, turns: int, places: int) -> list[float]:
    """Print one view; returns its frames under the wheel."""
    print(f"{'ms':<34}{'':>6}{'p50':>9}{'p99':>9}{'worst':>9}")
    reported("frames, without scrolling", frames(page, -turns))
    page.get_by_test_id("samples").hover()
    wheel = frames(page, turns)
    reported("frames under the wheel", wheel)
    jumps: list[tuple[float, int]] = [
        page.evaluate(JUMP, (0.5 + 0.618 * turn) % 1) for turn in range(1, places + 1)
    ]
    reported("thumb dragged until rows are drawn", [took for took, _ in jumps])
    print(
        f"first row seen at {min(row for _, row in jumps):,}, last {max(row for _, row in jumps):,}"
    )
    return wheel


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=300, help="of the wheel")
    parser.add_argument("--places", type=int, default=40, help="to which the thumb is dragged")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpcbench-scroll-") as name:
        folder = Path(name)
        make(folder / "home")
        for one in ("plans", "its"):
            (folder / one).mkdir()
        print(f"{COUNT:,} samples; load of the machine {os.getloadavg()[0]:.1f}")
        with (
            Running(folder / "home", folder / "plans", folder / "its") as portal,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            watch = Watch(f"http://localhost:{portal.port}")
            late = 0
            with opened(browser, watch, portal.link()) as (_, page):
                for view, query in VIEWS.items():
                    started = time.perf_counter()
                    page.goto(f"{watch.origin}/#/e/{ID}/t/rt/samples{query}")
                    page.locator('[data-number="0"][aria-busy="false"]').wait_for()
                    print(f"\n{view}: first rows after {time.perf_counter() - started:.2f} s")
                    late += sum(one > JANK_MS for one in measure(page, asked.turns, asked.places))
            watch.check()
        print(f"\n{late} frames under the wheel took longer than {JANK_MS:.0f} ms")


if __name__ == "__main__":
    main()
