"""Real virtual environments with as little in them as hpcbench's elements need."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hpcbench

NEEDED = (
    "annotated-types", "cloudpickle", "packaging", "pydantic", "pydantic-core", "pyyaml", "submitit",
    "typing-extensions", "typing-inspection",
)  # fmt: skip

PROBE = """\
import json, os, pathlib, sys
VERSION = {version!r}
def main(argv):
    pathlib.Path(argv[-1]).write_text(json.dumps([VERSION, __file__, sys.executable, os.environ.get("KEY")]))
"""


class SmallEnvironment:
    """A virtual environment with an editable hpcbench and an installed package `probe`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder.with_name(f"{folder.name}-checkout")
        self.python = folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.site = folder / "lib" / version / "site-packages"
        for name in NEEDED:
            self._take_over(name)
        package = Path(hpcbench.__file__).parent
        shutil.copytree(
            package, self.checkout / "hpcbench", ignore=shutil.ignore_patterns("__pycache__")
        )
        (self.site / "_hpcbench.pth").write_text(f"{self.checkout}\n")
        reported = {"url": self.checkout.as_uri(), "dir_info": {"editable": True}}
        self.install("hpcbench_vlm", hpcbench.__version__, {}, direct_url=reported)
        self.install("probe", "1.0", {"probe.py": PROBE.format(version="1.0")})

    def install(
        self, name: str, version: str, files: dict[str, str], **metadata: dict[str, Any]
    ) -> None:
        """As pip leaves a distribution; an older version goes."""
        for old in self.site.glob(f"{name}-*.dist-info"):
            shutil.rmtree(old)
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir()
        texts = {file: json.dumps(data) for file, data in metadata.items()}
        for file, text in texts.items():
            (folder / f"{file}.json").write_text(text)
        for file, text in files.items():
            (self.site / file).write_text(text)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        lines = [f"{file},{hash(text)}," for file, text in files.items()]
        (folder / "RECORD").write_text("\n".join([*lines, *texts.values()]))

    def run(self, code: str, *arguments: str | Path, **environ: str) -> str:
        """Run a line in it; returns what it prints."""
        done = run([self.python, "-I", "-c", code, *arguments], **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _take_over(self, name: str) -> None:
        for file in importlib.metadata.files(name) or ():
            source, target = Path(str(file.locate())), self.site / file
            if ".." in file.parts or file.suffix == ".pyc" or not source.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def run(argv: list[str | Path], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder without code, with nothing of Python's in the environment."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [str(one) for one in argv],
        capture_output=True, text=True, check=False, env={**clean, **environ}, cwd="/",
    )  # fmt: skip
