"""The first load of the portal's client, the portal's memory on a walk through all pages, and a bundle.

A real portal shows a home in a real browser. Printed are: the time until something of the page is drawn
(first contentful paint) and the bytes that the first load takes on the line, files of the client and answers
of the API apart; the portal's memory (PSS) after a start without a client, after the first load, and after a
walk through every page that there is; and how long `hpcbench portal bundle` takes for an experiment, by the
clock and by its CPU time, and how many files it writes. Goals: 174 KB of the client's files, 100 MB without a
client, 200 MB after the walk, 8 s and 200 files.

    python benchmarks/portal_walk.py [--home FOLDER] [--experiment ID]

Without --home a small home is made and thrown away. FOLDER is a `HPCBENCH_HOME`, as `portal_home.py` makes
one, or that of a demo run; --experiment is the one that becomes a bundle, the newest one if it is not given.
Chromium is that of the tests (`HPCBENCH_CHROMIUM`).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Request, expect, sync_playwright  # noqa: E402

from benchmarks import portal_home  # noqa: E402
from hpcbench.experiment.layout import Experiment, experiments_dir  # noqa: E402
from tests.portal.browsing import CHROMIUM, FLAGS, Running, Watch, tab  # noqa: E402
from tests.portal.walk import pages, settled, visit  # noqa: E402

CLIENT_KB, ALONE_MB, WALK_MB, BUNDLE_SECONDS, BUNDLE_FILES = 174.0, 100.0, 200.0, 8.0, 200
ALONE_SECONDS = 5.0
"""Seconds after a start when memory is measured."""

PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""


def memory(portal: Running) -> float:
    """Memory of the portal with its share of pages that others hold, too (PSS), MB."""
    assert portal.process is not None
    text = Path(f"/proc/{portal.process.pid}/smaps_rollup").read_text()
    kilobytes = next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))
    return int(kilobytes) * 1.024e-3


def first_load(browser: Browser, portal: Running, times: int = 5) -> tuple[float, float, float]:
    """Median of first contentful paint, ms; KB of the client's files and of the API's answers, compressed."""
    paints, client, api = [], 0.0, 0.0
    for _ in range(times):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        done: list[Request] = []
        page.on("requestfinished", lambda one, done=done: done.append(one))
        page.goto(portal.link())
        page.get_by_role("heading", level=1).first.wait_for()
        settled(page)
        paints.append(float(page.evaluate(PAINT)))
        sizes = [("/api/" in one.url, one.sizes()["responseBodySize"] / 1e3) for one in list(done)]
        client, api = (
            sum(size for of_api, size in sizes if of_api is way) for way in (False, True)
        )
        context.close()
    return sorted(paints)[len(paints) // 2], client, api


def walk(browser: Browser, portal: Running, made: list[Experiment]) -> int:
    """Visit every page; returns how many there are."""
    watch = Watch(f"http://localhost:{portal.port}")
    addresses = pages(made)
    with tab(browser, portal, watch, reduced_motion="reduce") as (_, page):
        for address in addresses.values():
            visit(page, watch.origin, address)
    return len(addresses)


def bundle(portal: Running, experiment: Experiment, out: Path) -> tuple[float, float, int]:
    """Make a bundle with images and logs; returns seconds by the clock, of CPU, and files."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    argv = ["portal", "bundle", experiment.id, "--out", str(out), "--images", "--logs"]
    subprocess.run(
        [sys.executable, "-m", "hpcbench.cli.main", *argv],
        env=portal.environ, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu, sum(1 for path in out.rglob("*") if path.is_file())


def main() -> None:
    """Measure, and say what misses its goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--home", type=Path, help="a HPCBENCH_HOME; none: a small one is made")
    parser.add_argument("--experiment", help="the experiment that becomes a bundle")
    asked = parser.parse_args()
    expect.set_options(timeout=180_000)
    with tempfile.TemporaryDirectory(prefix="hpcbench-walk-") as name, sync_playwright() as driver:
        folder = Path(name)
        home = asked.home
        if home is None:
            home = folder / "home"
            portal_home.make(portal_home.Size(home, 3, 12, 60, 3, 1), tell=lambda line: None)
        made = [Experiment(path) for path in sorted(experiments_dir(home.resolve()).iterdir())]
        chosen = next((one for one in made if one.id == asked.experiment), made[-2:][0])
        (folder / "plans").mkdir()
        print(f"{len(made)} experiments; load of the machine {os.getloadavg()[0]:.1f}")
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        with Running(home.resolve(), folder / "plans", folder / "its") as portal:
            time.sleep(ALONE_SECONDS)
            alone = memory(portal)
            paint, client, api = first_load(browser, portal)
            first = memory(portal)
            count = walk(browser, portal, made) if len(made) > 1 else 0  # it compares two
            walked = memory(portal)
            took, cpu, files = bundle(portal, chosen, folder / "bundle")
        browser.close()
    print(f"first contentful paint {paint:.0f} ms (median of 5, headless)")
    print(f"first load: {client:.0f} KB of the client, {api:.0f} KB of the API's answers")
    print(f"memory: {alone:.0f} MB without a client, {first:.0f} MB after the first load, "
          f"{walked:.0f} MB after {count} pages")  # fmt: skip
    print(f"bundle of {chosen.id}: {took:.1f} s, CPU {cpu:.1f} s, {files} files")
    goals = (
        (client > CLIENT_KB, f"first load {client:.0f} KB"),
        (alone > ALONE_MB, f"memory without a client {alone:.0f} MB"),
        (walked > WALK_MB, f"memory after the walk {walked:.0f} MB"),
        (cpu > BUNDLE_SECONDS, f"bundle {cpu:.1f} s of CPU"),
        (files > BUNDLE_FILES, f"bundle {files} files"),
    )
    missed = [what for misses, what in goals if misses]
    print("misses its goal: " + "; ".join(missed) if missed else "all goals are met")


if __name__ == "__main__":
    main()
