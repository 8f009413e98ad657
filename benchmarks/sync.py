"""Bringing a dataset: 10,000 small files and 2 files of 1 GiB, from S3 on loopback and from a folder.

Prints SmartSync's time, Python's cold start included, beside `rclone sync` and `aws s3 sync` (where
installed) from the same server, and beside `rsync -a` and `cp -r` from the same folder; a ratio above 1 is
for SmartSync. All are run in turn, several times, and the best of each counts: disk and server are shared.

    python benchmarks/sync.py [--small 10000] [--large-mib 1024] [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

KEY, SECRET = "AKIABENCH", "benchsecret"

BRING = """
import sys
from pathlib import Path
from hpcbench.data.sync import SmartSync
url, cache, endpoint, pack = sys.argv[1:]
options = {"endpoint": endpoint, "region": "us-east-1"} if endpoint else {}
SmartSync(Path(cache)).bring(url, options, pack=pack == "pack")
"""


def write(folder: Path, small: int, large_mib: int) -> None:
    for number in range(small):
        path = folder / "small" / f"{number // 1000:02d}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(2000 + number % 18_000))
    (folder / "large").mkdir(parents=True)
    for number in range(2):
        with (folder / "large" / f"{number}.bin").open("wb") as file:
            for _ in range(large_mib):
                file.write(os.urandom(1 << 20))


def timed(argv: list[str], target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    begun = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - begun


def bring(url: str, endpoint: str, pack: str) -> Callable[[Path], list[str]]:
    return lambda target: [sys.executable, "-c", BRING, url, str(target), endpoint, pack]


def compare(
    title: str, runs: int, rivals: dict[str, Callable[[Path], list[str]]], work: Path
) -> None:
    best: dict[str, float] = {}
    for _ in range(runs):
        for name, argv in rivals.items():
            target = work / "target"
            best[name] = min(best.get(name, 1e9), timed(argv(target), target))
    shutil.rmtree(work / "target", ignore_errors=True)
    ours = {name: took for name, took in best.items() if name.startswith("SmartSync")}
    print(f"\n{title}")
    for name, took in best.items():
        ratios = (
            ""
            if name in ours
            else "".join(f"  {name} / {own} = {took / mine:.2f}" for own, mine in ours.items())
        )
        print(f"  {name:<20} {took:7.2f} s{ratios}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large-mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    rclone = str(Path(sys.executable).with_name("rclone"))
    os.environ |= {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
        "RCLONE_CONFIG": "/dev/null",
    }  # fmt: skip
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        socket.socket() as free,
    ):
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        work = Path(folder)
        write(work / "served/bench", arguments.small, arguments.large_mib)
        serve = [
            rclone,
            "serve",
            "s3",
            "--addr",
            f"127.0.0.1:{port}",
            "--auth-key",
            f"{KEY},{SECRET}",
        ]
        server = subprocess.Popen([*serve, str(work / "served")], stderr=subprocess.DEVNULL)
        endpoint = f"http://127.0.0.1:{port}"
        keys = f"access_key_id={KEY},secret_access_key={SECRET}"
        remote = f":s3,provider=Other,endpoint='{endpoint}',{keys}:bench"
        try:
            time.sleep(2)
            for what, title in (
                ("small", f"{arguments.small} files of 2 to 20 kB"),
                ("large", f"2 files of {arguments.large_mib} MiB"),
            ):
                packs = {"SmartSync packed": "pack"} if what == "small" else {}

                rivals = {
                    name: bring(f"s3://bench/{what}", endpoint, pack)
                    for name, pack in {"SmartSync": "loose", **packs}.items()
                }
                rivals["rclone sync"] = lambda target, what=what: [
                    rclone,
                    "sync",
                    f"{remote}/{what}",
                    str(target),
                ]
                if aws := shutil.which("aws"):
                    rivals["aws s3 sync"] = lambda target, what=what, aws=aws: [
                        aws, "--endpoint-url", endpoint, "s3", "sync", f"s3://bench/{what}", str(target),
                    ]  # fmt: skip
                compare(f"S3: {title}", arguments.runs, rivals, work)
                source = work / "served/bench" / what
                rivals = {
                    name: bring(f"file://{source}", "", pack)
                    for name, pack in {"SmartSync": "loose", **packs}.items()
                }
                if shutil.which("rsync"):
                    rivals["rsync -a"] = lambda target, source=source: [
                        "rsync",
                        "-a",
                        f"{source}/",
                        str(target),
                    ]
                rivals["cp -r"] = lambda target, source=source: [
                    "cp",
                    "-r",
                    str(source),
                    str(target),
                ]
                compare(f"folder: {title}", arguments.runs, rivals, work)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
