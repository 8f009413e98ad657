"""The test image: a small Debian with torch and transformers in it, as a real engine image has.

Its first layer, Debian with Python, is an image of its own for tests that need no engine: it is unpacked and
packed in a fifth of the time.

The packages that hpcbench mounts just in time (pydantic, uvicorn, aiohttp, prometheus_client, hpcbench) are
left out on purpose, so a test notices when they were not mounted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from .packages import ensure_uv, find_links, mirror
from .system import SYSTEM_PATH, Daemon, LabError, run, timed

PORT = 5055
SUITE, PYTHON = "bookworm", "3.11"
ADDRESSES = {
    "engine": f"docker://127.0.0.1:{PORT}/hpcbench/tiny-engine:1",
    "python": f"docker://127.0.0.1:{PORT}/hpcbench/python:1",
}
DEBIAN = ("python3", "python3-six", "ca-certificates")
"""Packages of both; the second is there to be found by hpcbench."""
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
GLIBC = "2_28"
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"

REGISTRY_YML = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {home}/registry}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def recipe_key() -> str:
    """Names what determines the images; another recipe makes another key."""
    recipe = json.dumps(
        [ADDRESSES, SUITE, PYTHON, DEBIAN, REQUIREMENTS, DROPPED, FIRST_IMPORT, GLIBC]
    )
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def ensure_images(home: Path) -> dict[str, str]:
    """Build and push the two images unless that was done; their digests. The registry then runs."""
    return _ensure(home, recipe_key(), ADDRESSES, _build)


def ensure_base(home: Path, suite: str = SUITE) -> str:
    """The same for a plain Debian without Python, which image recipes are built from."""
    build = partial(_build_base, suite=suite)
    return _ensure(home, f"debian-{suite}", {"debian": f"{BASE}:{suite}"}, build)["debian"]


def _ensure(
    home: Path, key: str, addresses: Mapping[str, str], build: Callable[[Path], Path]
) -> dict[str, str]:
    """Digest of each image of an OCI layout, whose tags are the names of their addresses."""
    (home / "image").mkdir(parents=True, exist_ok=True)
    kept = home / "image" / f"{key}.json"
    if not kept.exists():
        layout = build(home)
        start_registry(home)
        written = layout.parent / "digest"
        digests = {}
        for tag, address in addresses.items():
            with timed(f"skopeo: {tag} to registry"):
                push = ["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false"]
                push += ["--digestfile", str(written), f"oci:{layout}:{tag}", address]
                run(push, what="push the image")
            digests[tag] = written.read_text().strip()
        written.write_text(json.dumps(digests))
        written.rename(kept)  # only now are they complete
        shutil.rmtree(layout.parent)
    start_registry(home)
    found: dict[str, str] = json.loads(kept.read_text())
    return found


def has_image(home: Path) -> bool:
    return any((home / "image").glob("*.json"))


def registry(home: Path) -> Daemon:
    return Daemon("registry", ["docker-registry", "serve", home / "registry.yml"], home, at=PORT)


def start_registry(home: Path) -> None:
    """Serve the lab's images on loopback."""
    (home / "registry.yml").write_text(REGISTRY_YML.format(home=home, port=PORT))
    daemon = registry(home)
    daemon.start()
    daemon.wait_ready(20)


def _build(home: Path) -> Path:
    """Both images as an OCI layout with the tags `python` and `engine`."""
    work = _fresh(home)
    root = work / "root"
    # One after the other: side by side dpkg's fsyncs wait for the wheels' gigabyte, and both lose.
    _bootstrap(root, work, ",".join(DEBIAN), SUITE)
    layout = _pack(work, "python", "python3")
    _engine(home, root / SITE, work)
    with timed("first import"):
        # The image is read-only later, so what is compiled now is compiled once and not at every
        # start. Compiling only what is used halves the time and spares a hundred megabytes.
        run(
            ["chroot", root, "python3", "-W", "ignore", "-c", FIRST_IMPORT],
            what="import the engine in the image",
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        )
    # What was made since the first layer was packed.
    _add_layer(work, ["--newer", work / "python.tar"], "python", "engine")
    return layout


def _build_base(home: Path, suite: str) -> Path:
    work = _fresh(home)
    _bootstrap(work / "root", work, "", suite)
    return _pack(work, "debian", "bash")


def _fresh(home: Path) -> Path:
    work = home / "image/work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return work


def _pack(work: Path, tag: str, command: str) -> Path:
    """An OCI layout with an image of one layer, all that is below `root`."""
    layout = work / "oci"
    image = ["--image", f"{layout}:{tag}"]
    run(["umoci", "init", "--layout", layout], what="make the OCI layout")
    run(["umoci", "new", *image], what="make the OCI image")
    _add_layer(work, [], tag, tag)
    config = ["--config.env", "LANG=C.UTF-8", "--config.cmd", command]
    run(["umoci", "config", *image, *config], what="configure the image")
    return layout


def _add_layer(work: Path, chosen: Sequence[object], below: str, tag: str) -> None:
    """Make an image of another one and the chosen files below `root`."""
    with timed("tar, umoci: a layer"):
        file = work / f"{tag}.tar"
        tar = ["tar", "-C", work / "root", "--numeric-owner", "--exclude=./dev/*", *chosen]
        run([*tar, "-cf", file, "."], what="pack the image")
        add = ["umoci", "raw", "add-layer", "--image", f"{work}/oci:{below}", "--tag", tag]
        run([*add, file], what="add the layer")


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


def _engine(home: Path, site: Path, work: Path) -> None:
    uv = [ensure_uv(home), "pip", "install", "--quiet", "--index-strategy", "unsafe-best-match"]
    uv += [word for place in find_links() for word in ("--find-links", place)]
    uv += ["--python", sys.executable, "--python-platform", f"x86_64-manylinux_{GLIBC}"]
    # pip reads settings that uv does not, such as an index of the site; it takes five times as long.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    older = (f"manylinux_{GLIBC}_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
    pip += [word for name in older for word in ("--platform", name)]
    more = ["--target", site, "--python-version", PYTHON, "--only-binary", ":all:", *REQUIREMENTS]
    with timed("uv: torch, transformers"):
        try:
            run([*uv, *more], what="fetch by uv", log=work / "uv.log", timeout=1200)
        except LabError:
            shutil.rmtree(site, ignore_errors=True)
            run(
                [*pip, *more],
                what="fetch the engine's wheels (torch's CPU wheel: PIP_FIND_LINKS or its CPU index)",
                log=work / "pip.log",
                timeout=1200,
            )
    for pattern in DROPPED:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
