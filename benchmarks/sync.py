"""Bringing a dataset: 10,000 small files and 2 files of 1 GiB, from S3, from SSH and from a folder.

Prints SmartSync's time, Python's cold start included, beside `rclone sync` and `aws s3 sync` from the same
S3 server, `rsync` over the same sshd, and `rsync` and `cp` from the same folder; what is not installed is
left out. A ratio above 1 is for SmartSync. All are run in turn, to and fro, several times after one that does
not count, and the best of each counts: disk, servers and clients share this machine.

    python benchmarks/sync.py [--small 10000] [--large-mib 1024] [--runs 3] [--from s3 ssh folder]
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KEY, SECRET = "AKIABENCH", "benchsecret"

BRING = """
import json, sys
from pathlib import Path
from hpcbench.data.sync import SmartSync
url, options, pack, target = sys.argv[1:]
SmartSync(Path(target)).bring(url, json.loads(options), pack=pack == "pack")
"""

Rivals = dict[str, list[str]]
"""Name → command, to which the place is added where files shall go."""


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
    os.sync()
    # Last, and at once: two seconds after it is free, a virtual machine gives memory back to its host.
    shutil.rmtree(target, ignore_errors=True)
    started = time.perf_counter()
    subprocess.run(
        [*argv, str(target)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    return time.perf_counter() - started


def compare(title: str, runs: int, rivals: Rivals, target: Path) -> None:
    best = dict.fromkeys(rivals, 1e9)
    # The first program after a pause pays for all: a virtual machine gets its memory back page by page.
    for argv in rivals.values():
        timed(argv, target)
    for number in range(runs):
        order = list(rivals.items())
        for name, argv in order if number % 2 else reversed(order):
            best[name] = min(best[name], timed(argv, target))
    shutil.rmtree(target, ignore_errors=True)
    ours = {name: took for name, took in best.items() if name.startswith("SmartSync")}
    print(f"\n{title}")
    for name, took in best.items():
        beside = {} if name in ours else ours
        ratios = "".join(f"  {name} / {own} = {took / mine:.2f}" for own, mine in beside.items())
        print(f"  {name:<20} {took:7.2f} s{ratios}", flush=True)


def smart(url: str, options: dict[str, str], what: str) -> Rivals:
    bring = [sys.executable, "-c", BRING, url, json.dumps(options)]
    packed = {"SmartSync packed": [*bring, "pack"]} if what == "small" else {}
    return {"SmartSync": [*bring, "loose"], **packed}


def installed(**rivals: list[str]) -> Rivals:
    return {name.replace("_", " "): argv for name, argv in rivals.items() if shutil.which(argv[0])}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def s3(served: Path) -> Iterator[tuple[str, str]]:
    """An S3 server; gives its endpoint and rclone's name for it."""
    port = free_port()
    rclone = str(Path(sys.executable).with_name("rclone"))
    argv = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    server = subprocess.Popen([*argv, str(served)], stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    keys = f"access_key_id={KEY},secret_access_key={SECRET}"
    try:
        time.sleep(2)
        yield endpoint, f":s3,provider=Other,endpoint='{endpoint}',{keys}:bench"
    finally:
        server.kill()
        server.wait()


def from_s3(served: Path, what: str, remote: tuple[str, str]) -> Rivals:
    endpoint, name = remote
    url, options = f"s3://bench/{what}", {"endpoint": endpoint, "region": "us-east-1"}
    rclone = str(Path(sys.executable).with_name("rclone"))
    return smart(url, options, what) | installed(
        rclone_sync=[rclone, "sync", f"{name}/{what}"],
        aws_s3_sync=["aws", "--endpoint-url", endpoint, "s3", "sync", url],
    )


@contextlib.contextmanager
def ssh(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """An sshd; gives its port and our options for it."""
    port = free_port()
    for name in ("host", "user"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
        "Subsystem sftp internal-sftp\nMaxStartups 100\n"
    )
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    server = subprocess.Popen([sshd, "-D", "-f", str(folder / "config")], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield port, {"key": str(folder / "user"), "known_hosts": str(folder / "known")}
    finally:
        server.kill()
        server.wait()


def from_ssh(served: Path, what: str, remote: tuple[int, dict[str, str]]) -> Rivals:
    port, options = remote
    place = f"{getpass.getuser()}@127.0.0.1"
    shell = f"ssh -p {port} -i {options['key']} -o UserKnownHostsFile={options['known_hosts']}"
    source = served / "bench" / what
    return smart(f"sftp://{place}:{port}{source}", options, what) | installed(
        rsync_over_ssh=["rsync", "-a", "-e", shell, f"{place}:{source}/"]
    )


def from_folder(served: Path, what: str, remote: None) -> Rivals:
    source = served / "bench" / what
    return smart(f"file://{source}", {}, what) | installed(
        rsync=["rsync", "-a", f"{source}/"], cp=["cp", "-r", str(source)]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large-mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    kinds = ("s3", "ssh", "folder")
    parser.add_argument("--from", dest="kinds", nargs="+", choices=kinds, default=kinds)
    arguments = parser.parse_args()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
        "RCLONE_CONFIG": "/dev/null",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        work, served = Path(folder), Path(folder) / "served"
        write(served / "bench", arguments.small, arguments.large_mib)
        places = {
            "s3": (s3(served), from_s3),
            "ssh": (ssh(work), from_ssh),
            "folder": (contextlib.nullcontext(), from_folder),
        }
        for kind in arguments.kinds:
            server, rivals = places[kind]
            with server as remote:
                for what, title in (
                    ("small", f"{arguments.small} files of 2 to 20 kB"),
                    ("large", f"2 files of {arguments.large_mib} MiB"),
                ):
                    commands = rivals(served, what, remote)  # type: ignore[operator]
                    compare(f"{kind}: {title}", arguments.runs, commands, work / "target")


if __name__ == "__main__":
    main()
