"""A reader of the documentation, who types its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def typed(folder: Path, command: str, **more: str) -> str:
    """Output of a line on the screen; the line must succeed.

    Args:
        folder: the current folder; the reader's home and configuration are below it.
        command: a line for bash.
        more: further variables of the environment.
    """
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(
            [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "HPCBENCH_HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        **more,
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def hpcbench(
    home: Path, *arguments: object, code: int = 0, folder: Path = ROOT, **more: str
) -> str:
    """Output of a command with a home of its own, typed in a folder; it must end with `code`."""
    own = {"HPCBENCH_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hpcbench")), *map(str, arguments)], cwd=folder,
        env={**os.environ, **own, **more}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
