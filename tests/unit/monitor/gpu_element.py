"""What a worker stands for in the local executor's tests: it writes down what it was given, and when."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> None:
    """Write `FOLDER/PID.json` once the time is up; the first argument is the experiment."""
    folder, seconds = Path(argv[1]), float(argv[2])
    begun = time.monotonic()
    time.sleep(seconds)
    told = {
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        "begun": begun,
        "ended": time.monotonic(),
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(told))
