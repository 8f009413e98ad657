"""Images: conversion beside bare `apptainer build`, twenty ready ones, a container's start, two at once.

    python benchmarks/images.py IMAGE [--runs 3] [--program apptainer] [--insecure HOST:PORT]

IMAGE is `docker://…`, best pinned by its digest, on a registry nearby. Every cold run has caches of its own.
As an ordinary user, as Apptainer is used. Prints seconds and ratios: hpcbench's time through Apptainer's, so
below 1 is for hpcbench.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hpcbench import environments
from hpcbench.environments.oci import Reference, resolve
from hpcbench.environments.sif import COMPRESSION, Program
from hpcbench.environments.sources import Source
from hpcbench.schema.site import ContainerSite


def seconds(what: Callable[[], object]) -> float:
    started = time.perf_counter()
    what()
    return time.perf_counter() - started


def raw_build(program: str, source: Source, folder: Path) -> None:
    (folder / "tmp").mkdir(parents=True)
    env = os.environ | {
        "APPTAINER_CACHEDIR": str(folder / "cache"), "APPTAINER_TMPDIR": str(folder / "tmp"),
    }  # fmt: skip
    words = [program, "build", *(["--no-https"] if source.insecure else [])]
    words += ["--mksquashfs-args", COMPRESSION, str(folder / "x.sif"), f"docker://{source.origin}"]
    subprocess.run(words, env=env, check=True, capture_output=True)


def cold(site: ContainerSite, source: Source, runs: int, work: Path) -> None:
    best: dict[str, float] = {}
    for number in range(runs):
        ours, bare = work / f"ours{number}", work / f"bare{number}"
        (ours / "images").mkdir(parents=True)
        program = Program.find(site, ours)
        took = {
            "hpcbench": seconds(lambda: program.build(source, ours / "images/x.sif", lambda line: None)),  # noqa: B023
            "apptainer": seconds(lambda: raw_build(program.path, source, bare)),  # noqa: B023
        }  # fmt: skip
        stored = ours / "images/x.probe.json"
        took["probe"] = seconds(lambda: program.probe(ours / "images/x.sif", stored))  # noqa: B023
        best = {name: min(best.get(name, 1e9), value) for name, value in took.items()}
    size = (work / "ours0/images/x.sif").stat().st_size / 2**20
    print(f"cold conversion ({size:.0f} MiB SIF, best of {runs})")
    print(
        f"  apptainer {best['apptainer']:.2f} s, hpcbench {best['hpcbench']:.2f} s:"
        f" {best['hpcbench'] / best['apptainer']:.3f}; the look inside once: {best['probe']:.2f} s"
    )


def ready(site: ContainerSite, reference: str, cache: Path, runs: int) -> None:
    """Twenty pinned images: one, under twenty names of the manifest that names them."""
    environments.prepare(reference, cache, site)
    best = min(
        seconds(lambda: [environments.prepare(reference, cache, site) for _ in range(20)])
        for _ in range(runs)
    )
    print(f"20 pinned images that are there: {best:.3f} s")


def start(site: ContainerSite, reference: str, cache: Path, runs: int, work: Path) -> None:
    found = environments.prepare(reference, cache, site)
    (work / "private").mkdir()
    command = environments.wrap(
        found, ["python", "-c", "pass"], [str(work / "private")], {}, 0, site
    )
    program = Program.find(site, cache).path
    bare = [program, "--quiet", "exec", "--containall", found.path, "python3", "-c", "pass"]
    took: dict[str, list[float]] = {"apptainer": [], "hpcbench": []}
    for _ in range(10 * runs):  # in turn: the machine is shared
        took["apptainer"].append(seconds(lambda: subprocess.run(bare, check=True)))
        took["hpcbench"].append(
            seconds(
                lambda: subprocess.run(command.argv, env={**os.environ, **command.env}, check=True)
            )
        )
    median = {name: statistics.median(values) for name, values in took.items()}
    print(
        f"start of a container (median of {10 * runs}): apptainer {1000 * median['apptainer']:.0f} ms,"
        f" hpcbench {1000 * median['hpcbench']:.0f} ms: {median['hpcbench'] / median['apptainer']:.3f}"
    )


def two_at_once(site: ContainerSite, reference: str, work: Path) -> None:
    alone = seconds(lambda: environments.prepare(reference, work / "alone", site))
    threads = [
        threading.Thread(target=environments.prepare, args=(reference, work / "both", site))
        for _ in range(2)
    ]

    def both() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    took = seconds(both)
    built = len(list((work / "both/images").glob("*.sif")))
    print(f"two who want one image: {took:.2f} s, alone {alone:.2f} s; {built} SIF")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("image")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--program", default="apptainer")
    parser.add_argument("--insecure", nargs="*", default=[])
    arguments = parser.parse_args()
    site = ContainerSite(program=arguments.program, insecure_registries=tuple(arguments.insecure))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        work = Path(folder)
        named = Reference.parse(arguments.image)
        digest = ""

        def look_up() -> None:
            nonlocal digest
            digest = resolve(
                Reference(named.host, named.repository, named.tag, None), arguments.insecure
            )

        print(f"digest of a tag: {1000 * seconds(look_up):.0f} ms")
        pinned = f"docker://{named.at(digest)}"
        cold(site, Source.of(pinned, work, site), arguments.runs, work)
        two_at_once(site, pinned, work)
        ready(site, pinned, work / "alone", arguments.runs)
        start(site, pinned, work / "alone", arguments.runs, work)


if __name__ == "__main__":
    main()
