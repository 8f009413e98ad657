"""Agents of the scripted engine that pay, a ledger outside of hpcbench, and their turns on the disk."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.conftest import Trial
from tests.unit.interchange.atif_schema import check

CALLS = (
    ("calculator", {"expression": "1 + 1"}),
    ("pay", {"bill": "QUESTION, turn TURN"}),
    ("calculator", {"expression": "2 + 2"}),
)


class Ledger:
    """All payments, as a bank sees them: it does not know hpcbench's records.

    Args:
        folder: folder of its socket; a short path.
    """

    def __init__(self, folder: Path) -> None:
        self.paid = Counter[str]()
        self.socket = folder / "ledger"
        paid = self.paid

        class Desk(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                bill = self.rfile.read().decode()
                paid[bill] += 1
                with contextlib.suppress(OSError):  # who pays was killed
                    self.wfile.write(b"paid")

        self._server = socketserver.ThreadingUnixStreamServer(str(self.socket), Desk)
        self._server.daemon_threads = True
        self.socket.chmod(0o777)

    @property
    def tool(self) -> dict[str, Any]:
        """The tool that pays, for an agent's `tools`."""
        return {"name": "pay", "options": {"ledger": str(self.socket)}}

    @contextlib.contextmanager
    def open(self) -> Iterator[Ledger]:
        """Serve meanwhile."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


def lines(trial: Trial) -> list[dict[str, Any]]:
    """All lines of turns, in the order of attempts, loose or folded."""
    from hpcbench.experiment.layout import Experiment

    folder = Experiment(trial.path).shards("numbers")
    names = sorted(name for name in folder.names if name.endswith(".turns.jsonl"))
    return [line for name in names for line in folder.records(name)]


def turns(trial: Trial) -> set[tuple[str, int]]:
    """Sample and number of each turn on the disk."""
    return {(line["sample"], line["turn"]) for line in lines(trial) if "reply" in line}


def intents(trial: Trial) -> Counter[tuple[str, int, str]]:
    """Sample, turn and id of each payment, as hpcbench noted it before it was made."""
    return Counter(
        (line["sample"], line["turn"], line["intent"]["id"])
        for line in lines(trial)
        if "intent" in line
    )


def exits(trial: Trial) -> Counter[str]:
    """How the trajectories ended."""
    from hpcbench.experiment.claims import answers_of
    from hpcbench.experiment.layout import Experiment

    return Counter(
        answer.trajectory["exit"]
        for _, found in answers_of(Experiment(trial.path), "numbers")
        for answer in found.values()
        if answer.trajectory is not None
    )


def valid_trajectories(trial: Trial, folder: Path) -> int:
    """Number of trajectories that `hpcbench export` writes to a folder, each valid by ATIF's schema."""
    trial.bench.run("export", trial.id, "--format", "atif", "--out", folder)
    (path,) = (one for one in folder.iterdir() if one.is_file())
    with path.open(encoding="utf-8") as file:
        count = 0
        for line in file:
            document = json.loads(line)
            check(document)
            tools = document["agent"]["tool_definitions"]
            assert [one["function"]["name"] for one in tools] == ["calculator", "pay"]
            count += 1
        return count
