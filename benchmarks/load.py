"""Loading a model's weights from a shared file system, and from the node's own disk after staging them.

Writes a safetensors file of random weights into a folder of the shared file system, then prints how long
reading it into memory takes from there, how long staging copies it (`staging:` of a site), and how long
reading the copy takes; each cold, as far as the page cache can be dropped. Staging pays when more workers of
the node load the model than (staging / (shared - local)).

    python benchmarks/load.py [SHARED_FOLDER] [--local /tmp] [--mib 2048] [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpcbench.data.staging import stage

LOAD = """
import sys, time
from safetensors.torch import load_file
since = time.perf_counter()
tensors = load_file(sys.argv[1])
pages = (tensor.view(-1)[::2048] for tensor in tensors.values())  # a file in memory comes when it is touched
total = sum(float(page.float().sum()) for page in pages)
print(time.perf_counter() - since)
"""


def write(path: Path, mib: int) -> None:
    import torch
    from safetensors.torch import save_file

    shape = (64, 1 << 19)  # 64 MiB of bfloat16
    count = max(1, mib // 64)
    layers = {f"layer.{one}": torch.randn(shape).to(torch.bfloat16) for one in range(count)}
    save_file(layers, path)


def forget(folder: Path) -> None:
    """Have nothing of it in memory."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:  # not root: at least our own pages
        for path in folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)


def loaded(path: Path) -> float:
    forget(path.parent)
    argv = [sys.executable, "-c", LOAD, str(path)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def staged(source: Path, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    forget(source)
    started = time.perf_counter()
    stage(source, folder)
    return time.perf_counter() - started


def best(runs: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(runs))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shared", type=Path, nargs="?", default=Path.home())
    parser.add_argument("--local", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=arguments.shared) as there,
        tempfile.TemporaryDirectory(dir=arguments.local) as here,
    ):
        source, copies = Path(there), Path(here) / "staged"
        write(source / "model.safetensors", arguments.mib)
        shared = best(arguments.runs, lambda: loaded(source / "model.safetensors"))
        staging = best(arguments.runs, lambda: staged(source, copies))
        (copy,) = copies.glob("*/files/model.safetensors")
        local = best(arguments.runs, lambda: loaded(copy))
    size = arguments.mib / 1024
    for name, took in (("shared", shared), ("staging", staging), ("local", local)):
        print(f"{name:<8} {took:7.2f} s  {size / took:6.2f} GiB/s")
    print(f"shared / local = {shared / local:.2f}")
    if shared > local:
        print(f"staging pays from {staging / (shared - local):.1f} loads on")


if __name__ == "__main__":
    main()
