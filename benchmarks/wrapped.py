"""The wrapper as a worker starts it, for benchmarks: in any Python, also one without hpcbench installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench.inference.client import Client, EngineGone  # noqa: E402

KEY = "a-key-of-the-benchmark"

ENTRY_POINTS = """\
[hpcbench.engines]
huggingface = hpcbench.engines.huggingface:HuggingFaceEngine
vllm = hpcbench.engines.vllm:VllmEngine
"""


class Wrapper:
    """A wrapper with a folder of its own, both gone when the block ends.

    Args:
        python: has the engine.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hb"))  # short: sockets hold 107 bytes
        self.socket, self.log = self.folder / "s", self.folder / "engine.log"
        (self.folder / "e").mkdir()
        argv = ["--socket", self.socket, "--engine-dir", self.folder / "e", "--log", self.log]
        with (self.folder / "wrapper.log").open("wb") as errors:
            self.process = subprocess.Popen(
                [python, "-m", "hpcbench.wrapper", *map(str, argv)],
                stdin=subprocess.PIPE, stdout=errors, stderr=errors,
                env={**os.environ, "PYTHONPATH": f"{_installed(self.folder)}:{ROOT}"},
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(f"{KEY}\n".encode())
        self.process.stdin.flush()

    def __enter__(self) -> Wrapper:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def load(self, client: Client, timeout: float, **body: Any) -> dict[str, Any]:
        """Have it load a model, as soon as it is up itself."""
        for _ in range(600):
            try:
                await client.status()
                break
            except EngineGone:
                await asyncio.sleep(0.1)
        return await client.load(body, timeout)

    @property
    def engine_socket(self) -> Path:
        """Where the engine itself listens."""
        [socket] = (self.folder / "e").glob("*/s")
        return socket


def _installed(folder: Path) -> Path:
    """A folder in which Python finds plugins by their entry points, as in an installed hpcbench."""
    info = folder / "site/benchmark-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmark\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return info.parent
