"""The test image: a small Debian with torch and transformers in it, as a real engine image has.

The packages that hpcbench mounts just in time (pydantic, uvicorn, aiohttp, prometheus_client, hpcbench) are
left out on purpose, so a test notices when they were not mounted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .packages import mirror
from .system import SYSTEM_PATH, Daemon, run, timed

PORT = 5055
NAME = "hpcbench/tiny-engine:1"
REFERENCE = f"docker://127.0.0.1:{PORT}/{NAME}"
SUITE, PYTHON = "bookworm", "3.11"
BASE = f"docker://127.0.0.1:{PORT}/hpcbench/debian"
REQUIREMENTS = (
    *("torch==2.13.0+cpu", "transformers>=5.16.1,<5.20"),
    *("pillow", "safetensors", "tokenizers", "numpy", "jinja2"),
)
# Below dist-packages. pydantic arrives through transformers' command line (typer), which no test
# uses; the rest is for compiling against torch or for testing it.
DROPPED = (
    *("bin", "share", "torch/include", "torch/test", "torch/share", "torch/bin/protoc*"),
    *(
        "torch/bin/test_*",
        "torch/lib/*_test.so",
        "torch/lib/*.a",
        "torch/lib/lib*custom_ops.so",
    ),
    *("pydantic", "pydantic-*", "pydantic_core*", "annotated_types*", "typing_inspection*"),
    *("nvidia*", "triton*", "numpy/*/tests", "numpy/tests", "sympy/*/tests", "networkx/*/tests"),
)
FIRST_IMPORT = """
import jinja2, numpy, PIL.Image, safetensors.torch, tokenizers, torch
from transformers import AutoModelForImageTextToText, AutoProcessor, StoppingCriteria
from transformers import Qwen2VLForConditionalGeneration, Qwen2VLProcessor, TextIteratorStreamer
"""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"

REGISTRY_YML = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {home}/registry}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def recipe_key() -> str:
    """Names what determines the image; another recipe makes another key."""
    recipe = json.dumps([NAME, SUITE, PYTHON, REQUIREMENTS, DROPPED, FIRST_IMPORT])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def ensure_image(home: Path) -> str:
    """Build and push the image unless that was done; its digest. The registry then runs."""
    return _ensure(home, recipe_key(), REFERENCE, _build)


def ensure_base(home: Path, suite: str = SUITE) -> str:
    """The same for a plain Debian without Python, which image recipes are built from."""
    build = partial(_build_base, suite=suite)
    return _ensure(home, f"debian-{suite}", f"{BASE}:{suite}", build)


def _ensure(home: Path, key: str, reference: str, build: Callable[[Path], Path]) -> str:
    (home / "image").mkdir(parents=True, exist_ok=True)
    digest = home / "image" / f"{key}.digest"
    if not digest.exists():
        layout = build(home)
        start_registry(home)
        with timed("skopeo: layout to registry"):
            push = ["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false"]
            push += ["--digestfile", str(layout.parent / "digest"), f"oci:{layout}:1", reference]
            run(push, what="push the image")
        (layout.parent / "digest").rename(digest)  # only now is it complete
        shutil.rmtree(layout.parent)
    start_registry(home)
    return digest.read_text().strip()


def has_image(home: Path) -> bool:
    return any((home / "image").glob("*.digest"))


def registry(home: Path) -> Daemon:
    return Daemon("registry", ["docker-registry", "serve", home / "registry.yml"], home, at=PORT)


def start_registry(home: Path) -> None:
    """Serve the lab's images on loopback."""
    (home / "registry.yml").write_text(REGISTRY_YML.format(home=home, port=PORT))
    daemon = registry(home)
    daemon.start()
    daemon.wait_ready(20)


def _build(home: Path) -> Path:
    """The image as an OCI layout with the tag `1`."""
    work = _fresh(home)
    root = work / "root"
    # One after the other: side by side dpkg's fsyncs wait for pip's gigabyte, and both lose.
    _bootstrap(root, work, "python3,ca-certificates", SUITE)
    _engine(root / SITE, work)
    with timed("first import"):
        # The image is read-only later, so what is compiled now is compiled once and not at every
        # start. Compiling only what is used halves the time and spares a hundred megabytes.
        run(
            ["chroot", root, "python3", "-W", "ignore", "-c", FIRST_IMPORT],
            what="import the engine in the image",
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        )
    return _pack(work, "python3")


def _build_base(home: Path, suite: str) -> Path:
    work = _fresh(home)
    _bootstrap(work / "root", work, "", suite)
    return _pack(work, "bash")


def _fresh(home: Path) -> Path:
    work = home / "image/work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return work


def _pack(work: Path, command: str) -> Path:
    layout = work / "oci"
    with timed("tar, umoci: image as OCI layout"):
        tar = ["tar", "-C", work / "root", "--numeric-owner", "--exclude=./dev/*"]
        run([*tar, "-cf", work / "layer.tar", "."], what="pack the image")
        run(["umoci", "init", "--layout", layout], what="make the OCI layout")
        image = ["--image", f"{layout}:1"]
        run(["umoci", "new", *image], what="make the OCI image")
        run(["umoci", "raw", "add-layer", *image, work / "layer.tar"], what="add the layer")
        config = ["--config.env", "LANG=C.UTF-8", "--config.cmd", command]
        run(["umoci", "config", *image, *config], what="configure the image")
    return layout


def _bootstrap(root: Path, work: Path, packages: str, suite: str) -> None:
    with timed("mmdebstrap: Debian"):
        # mmdebstrap makes what debootstrap makes, without an fsync per file: 10 s, not 30 s.
        words = ["mmdebstrap", "--variant=apt", *([f"--include={packages}"] if packages else [])]
        words += ["--keyring=/usr/share/keyrings/debian-archive-keyring.gpg"]
        words += [
            f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")
        ]
        run(
            [*words, suite, root, mirror()],
            what=f"make a Debian {suite}",
            log=work / "mmdebstrap.log",
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        )


def _engine(site: Path, work: Path) -> None:
    with timed("pip: torch, transformers"):
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--target",
            site,
        ]
        words += ["--python-version", PYTHON, "--only-binary", ":all:"]
        words += [word for name in PLATFORMS for word in ("--platform", name)]
        run(
            [*words, *REQUIREMENTS],
            what="fetch the engine's wheels (torch's CPU wheel: PIP_FIND_LINKS or its CPU index)",
            log=work / "pip.log",
            timeout=1200,
        )
        for pattern in DROPPED:
            for path in site.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
