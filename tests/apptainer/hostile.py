"""An engine that looks at all it can reach, prints what it found, and ends; for `test_isolation.py`."""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Engine:
    """Starts this module in the container instead of a server."""

    api = 1

    def launch_command(self, spec: Any) -> Any:
        from hpcbench.plugins import Command

        given = json.dumps({**spec.options, "model": spec.model_path})
        return Command([sys.executable, "-m", "hostile", given])


def attempt(what: Callable[[], object]) -> object:
    """Result of the attempt, or the name of the error."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001 - any will do
        return type(error).__name__


def program(line: Path) -> object:
    return attempt(lambda: line.read_bytes().split(b"\0")[0].decode())


def look(given: dict[str, Any]) -> dict[str, object]:
    def write(path: str) -> str:
        Path(path).write_text("hacked")
        return "written"

    home = Path(given["home"])
    return {
        "secret file": attempt(lambda: Path(given["secret"]).read_text()),
        "home": attempt(lambda: sorted(path.name for path in home.iterdir())),
        "events": attempt(lambda: [path.name for path in home.rglob("*.events.jsonl")]),
        "password file": attempt(lambda: "hpcuser" in Path("/etc/shadow").read_text()),
        "munge": attempt(lambda: list(Path("/run/munge").iterdir())),
        "environment": sorted(set(os.environ) & set(given["names"])),
        "processes": [
            name
            for name in map(program, Path("/proc").glob("[0-9]*/cmdline"))
            if name in given["programs"]
        ],
        "into the model": attempt(lambda: write(given["model"] + "/config.json")),
        "into the packages": attempt(lambda: write("/opt/hpcbench/packages/hpcbench/__init__.py")),
        "network": attempt(lambda: socket.socket().connect_ex(("127.0.0.1", given["port"]))),
        "its own folder": attempt(lambda: write("scratch-file")),
    }


if __name__ == "__main__":
    print("FOUND " + json.dumps(look(json.loads(sys.argv[1]))), flush=True)
    sys.exit(3)
