"""A virtual environment with the real SGLang that runs on a CPU: an addition to vLLM's for CPUs.

SGLang's wheel wants 3 GB of CUDA packages, and does not need them where a model has no kernel of its own and
attention is `torch_native`: its source and the few small packages that vLLM's environment lacks are enough.
Triton must be there to be imported; nothing of it runs. A mixture of experts does not work: its kernel is
Triton's.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from .packages import ensure_uv, find_links
from .system import SYSTEM_PATH, run, timed
from .vllm_env import INTERPRETER
from .vllm_env import recipe_key as vllm_key

REQUIREMENTS = (
    *("sglang==0.5.23", "gguf==0.19.0", "ipython==9.18.1", "orjson==3.13.0", "soundfile==0.14.0"),
    *("traitlets==5.16.1", "triton==3.9.0"),
)


def recipe_key() -> str:
    return hashlib.sha256(json.dumps([REQUIREMENTS, vllm_key()]).encode()).hexdigest()[:16]


def ensure_sglang(home: Path, vllm_python: Path) -> Path:
    """Make the environment unless it is there; its Python."""
    venv = home / "sglang"
    python, complete = venv / "bin/python", venv / "complete"
    if complete.exists() and complete.read_text() == recipe_key():
        return python
    shutil.rmtree(venv, ignore_errors=True)
    uv = ensure_uv(home)
    log = home / "log/sglang.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with timed("uv: SGLang for CPU"):
        run(
            [uv, "venv", "--quiet", "--python", INTERPRETER, venv], what="make SGLang's environment"
        )
        words = [uv, "pip", "install", "--python", python, "--no-deps"]
        words += [word for place in find_links() for word in ("--find-links", place)]
        run([*words, *REQUIREMENTS], what="install SGLang", log=log, timeout=1800)
    beside = next(vllm_python.parents[1].glob("lib/python3*/site-packages"))
    site = next(venv.glob("lib/python3*/site-packages"))
    (site / "vllm_env.pth").write_text(f"import site; site.addsitedir({str(beside)!r})\n")
    with timed("import sglang"):
        environment = {"PATH": SYSTEM_PATH, "HOME": str(venv)}
        check = [python, "-c", "import sglang.srt.entrypoints.http_server"]
        run(check, what="import sglang", env=environment, cwd=venv)
    complete.write_text(recipe_key())
    return python
