"""From an answer on disk to the pixels that show it: a worker, a real portal, and a real browser.

A worker (`portal_home.grow`) appends an answer to a running experiment about once a second, forces it to the
disk and tells of it. The portal follows these files and tells the page of the experiment, which paints how
many answers there are. The time starts before the answer is written, so the disk's own time is in it,
and ends when the frame with that many or more is drawn: a MutationObserver in the page sees the number
change, and the frame after the next has started. Both read the clock of the same machine. The goal is
3 s; the floor is the page alone, a change by a script of its own until its frame is drawn.

The output separates the first seconds of a worker: its file has to be found first, which takes longer where
a file system reports changes late, up to 15 s. A real worker loads its model in that time.

    python benchmarks/portal_pixel.py [--events 44] [--per-second 0.77] [--home FOLDER]

Without --home a small home is made and thrown away. FOLDER is one that `portal_home.py --running 1` made; its
running experiment grows. Chromium is that of the tests (`HPCBENCH_CHROMIUM`).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright  # noqa: E402

from benchmarks import portal_home  # noqa: E402
from hpcbench.experiment.layout import Experiment, experiments_dir  # noqa: E402
from tests.portal.browsing import CHROMIUM, FLAGS, Running, Watch, answered, opened  # noqa: E402

GOAL = 3.0
"""Seconds, from the disk to the pixel."""

NEW_SECONDS = 16.0
"""So long a worker is new."""

PATIENCE = 30.0
"""Seconds after the last answer in which the page may still show it."""

NOTE = """() => {
  const main = document.querySelector("main");
  const text = () => /([\\d,]+) of [\\d,]+ samples/.exec(main.textContent)?.[1];
  const clock = () => (performance.timeOrigin + performance.now()) / 1000;
  window.painted = [];
  window.drawn = (then) => requestAnimationFrame(() => requestAnimationFrame(() => then(clock())));
  let last = text();
  new MutationObserver(() => {
    const now = text();
    if (now === undefined || now === last) return;
    last = now;
    window.drawn((time) => window.painted.push([Number(now.replace(/\\D/g, "")), time]));
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
"""Notes each number of answers with the time at which the frame after the one with it begins."""

FLOOR = """() => new Promise((done) => {
  const since = (performance.timeOrigin + performance.now()) / 1000;
  document.querySelector("h1").append("");
  window.drawn((time) => done(time - since));
})"""


def measure(
    page: Page, experiment: Experiment, events: int, per_second: float
) -> tuple[list[float], list[float]]:
    """Seconds of each answer until it is drawn: those of a worker that is new, and those after that."""
    before = answered(page)
    page.evaluate(NOTE)
    argv = [sys.executable, __file__, "--write", str(experiment.path)]
    worker = subprocess.Popen(
        [*argv, "--events", str(events), "--per-second", str(per_second)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    reported, _ = worker.communicate()
    given = [
        (before + int(count), float(since))
        for count, since in map(str.split, reported.splitlines())
    ]
    last = given[-1][0]
    page.wait_for_function(
        "last => painted.some(([count]) => count >= last)", arg=last, timeout=PATIENCE * 1e3
    )
    painted: list[tuple[int, float]] = page.evaluate("painted")
    new: list[float] = []
    known: list[float] = []
    for count, since in given:
        took = min(time for shown, time in painted if shown >= count) - since
        (new if since - given[0][1] < NEW_SECONDS else known).append(took)
    return new, known


def report(times: list[float], floor: float) -> None:
    """Print what came out."""
    middle, worst = statistics.median(times), max(times)
    slow = sorted(times)[int(0.9 * len(times))]
    print(f"{'':<8}{'s':>7}{'÷ goal':>9}{'× floor':>9}")
    for name, value in (("median", middle), ("p90", slow), ("worst", worst)):
        print(f"{name:<8}{value:>7.2f}{value / GOAL:>9.2f}{value / floor:>9.0f}")
    print(f"{'floor':<8}{floor:>7.3f}   the page alone, a change until its frame is drawn")
    missed = sum(one > GOAL for one in times)
    print(f"{missed} of {len(times)} took longer than {GOAL:g} s" if missed else "the goal is met")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=44, help="answers")
    parser.add_argument("--per-second", type=float, default=0.77, help="answers")
    parser.add_argument("--home", type=Path, help="made by portal_home.py; none: a small one")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        portal_home.grow(
            Experiment(asked.write), asked.per_second, asked.events,
            tell=lambda given, since: print(given, since, flush=True),
        )  # fmt: skip
        return
    with tempfile.TemporaryDirectory(prefix="hpcbench-pixel-") as name:
        folder = Path(name)
        if asked.home is None:
            size = portal_home.Size(folder / "home", 3, 12, 100, 1, 1)
            portal_home.make(size, tell=lambda _: None)
        home = (asked.home or folder / "home").resolve()
        experiment = Experiment(max(experiments_dir(home).iterdir()))
        print(f"{len(list(experiments_dir(home).iterdir()))} experiments; load of the machine "
              f"{os.getloadavg()[0]:.1f}")  # fmt: skip
        for one in ("plans", "its"):
            (folder / one).mkdir()
        portal = Running(home, folder / "plans", folder / "its")
        portal.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
                watch = Watch(f"http://localhost:{portal.port}")
                with opened(browser, watch, portal.link()) as (_, page):
                    page.goto(f"{watch.origin}/#/e/{experiment.id}")
                    page.get_by_text("Live", exact=True).wait_for()
                    page.get_by_text(re.compile("of .* samples")).first.wait_for()
                    page.wait_for_load_state("networkidle")
                    new, times = measure(page, experiment, asked.events, asked.per_second)
                    floor = statistics.median(page.evaluate(FLOOR) for _ in range(30))
                watch.check()
        finally:
            portal.stop()
        print(
            f"{len(times)} answers of a worker that is known; load of the machine {os.getloadavg()[0]:.1f}"
        )
        report(times, floor)
        print(f"while the worker was new: worst of {len(new)} {max(new):.2f} s")


if __name__ == "__main__":
    main()
