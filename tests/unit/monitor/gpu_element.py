"""A worker's stand-in for the tests of the local executor: it writes down its GPUs and its time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

HOLD = 0.3
"""Seconds each runs at least, so that two at once are seen as such."""


def main(argv: Sequence[str]) -> None:
    """Run until so many elements have started, and write `FOLDER/PID.json`.

    Args:
        argv: the experiment; the folder; how many elements must have started in the folder's parent, so that
            a slow machine cannot end one before the next is there.
    """
    folder, together = Path(argv[1]), int(argv[2])
    started = time.monotonic()
    (folder / f"{os.getpid()}.started").touch()
    time.sleep(HOLD)
    while (
        len(list(folder.parent.glob("*/*.started"))) < together and time.monotonic() < started + 120
    ):
        time.sleep(0.02)
    reported = {
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        "started": started,
        "ended": time.monotonic(),
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(reported))
