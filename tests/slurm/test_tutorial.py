"""The tutorial's page about clusters, command by command on the cluster, with the output that it shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.pages import blocks, missing, shown
from tests.slurm.drill import impatient, until
from tests.user import of_her_own

PAGE = Path(__file__).parents[2] / "docs/tutorial-cluster.md"

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]


class Reader:
    """An ordinary user who types the page's commands."""

    def __init__(self, lab: Lab, python: Path, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.environ = {
            **lab.env(),
            "HOME": str(folder),
            **of_her_own(folder),
            "PATH": f"{python.parent}{os.pathsep}{lab.env()['PATH']}",
        }
        self.printed: dict[str, str] = {}
        """Command → what it printed when it last ran."""

    def type(self, command: str, code: int = 0) -> str:
        """Run a line; it must end with this exit code."""
        # One that ends otherwise than well waits two minutes for late news of a shared file system.
        more = impatient(self.folder) if code else {}
        done = subprocess.run(
            self.lab.user_argv(["bash", "-c", command]), cwd=self.folder, env={**self.environ, **more},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}"
        self.printed[command] = done.stdout
        return done.stdout

    def jobs(self) -> str:
        """The job numbers that the last `submit` of the page printed."""
        found = re.search(
            r"\(g0 (\d+), finalise (\d+)\)", self.printed["hpcbench submit first.yaml"]
        )
        assert found is not None
        return " ".join(found.groups())

    def works(self) -> bool:
        """Whether both workers of the newest experiment have a shard, and answers came."""
        status = json.loads(self.type("hpcbench status @last --json"))
        busy = [one for one in status["workers"] if one["shard"]]
        return len(busy) == 2 and status["answered"] > 10

    def end(self) -> None:
        """Cancel what is left, hers alone."""
        names = [f":{path.name}:" for path in self.folder.glob("hpcbench/experiments/*-*")]
        mine = [job for job in self.lab.squeue() if any(name in job.name for name in names)]
        if mine:
            self.lab.run_as_user(["scancel", *{job.id.partition("_")[0] for job in mine}])


@pytest.fixture
def reader(lab: Lab, lab_python_with_engine: Path) -> Iterator[Reader]:
    folder = lab.new_directory("tutorial")
    one = Reader(lab, lab_python_with_engine, folder)
    yield one
    one.end()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_commands_of_the_page_run_and_print_what_it_shows(reader: Reader) -> None:
    for block in blocks(PAGE):
        if block.note == "not run":
            continue
        if block.file:
            path = reader.folder / block.file
            path.write_text(block.text)
            shutil.chown(path, "hpcuser")
        elif block.language == "sh":
            if block.note == "when":
                until(reader.works, "answers of both workers", 300)
            text = (
                block.text.replace(block.value, reader.jobs())
                if block.note == "jobs"
                else block.text
            )
            for line in text.splitlines():
                reader.type(line, int(block.value) if block.note == "exit" else 0)
        elif block.language == "text":
            for command, lines in shown(block):
                wrong = missing(lines, reader.printed[command])
                assert wrong is None, f"{command}: {wrong}\n{reader.printed[command]}"
    (compared,) = (text for command, text in reader.printed.items() if " compare " in command)
    assert re.search(r" \d/\d/19\d +100 +equivalent", compared), compared
