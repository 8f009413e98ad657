"""Processes that do one thing on one mount, on command line by line.

    holder = Actor("hold", path, 0)
    assert holder.hears() == "claimed 1"
    holder.tell("s0")
    assert holder.hears() == "acknowledged s0"

The part of each is a function below; it runs in a Python of its own.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from hpcbench.errors import RunFailed
from hpcbench.experiment import submission_lock
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    answers_of,
    claim,
    pieces_of,
    shard_states,
)
from hpcbench.experiment.events import EventTail
from hpcbench.experiment.layout import Experiment
from hpcbench.files import lease
from hpcbench.files.atomic import create_exclusive
from tests.unit.small import response

ROOT = Path(__file__).parents[2]


def on_host(name: str) -> list[str]:
    """Words before a command, with which it runs on a host of that name as far as it can see."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]


class Actor:
    """One such process.

    Args:
        part: what it does.
        arguments: of that.
        host: name of its host; empty: this one.
    """

    _running: ClassVar[list[Actor]] = []

    def __init__(self, part: str, *arguments: object, host: str = "") -> None:
        words = [sys.executable, "-m", "tests.sharedfs.actors", part, *map(str, arguments)]
        words = [*on_host(host), *words] if host else words
        self.process = subprocess.Popen(
            words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        Actor._running.append(self)

    def tell(self, line: str = "") -> None:
        """Say a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hears(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended"
        return line.rstrip("\n")

    def rest(self) -> list[str]:
        """All output until it ends, in order; it gets no more commands."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        lines = self.process.stdout.read().splitlines()
        assert self.process.wait() == 0, lines
        return lines

    def kill(self) -> list[str]:
        """`kill -9`; the output that no test has read yet."""
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        return self.process.stdout.read().splitlines()

    @classmethod
    def end_all(cls) -> None:
        """End those that a test left."""
        for one in cls._running:
            one.process.kill()
            with one.process, contextlib.suppress(BrokenPipeError):
                pass
        cls._running.clear()


def say(*words: object) -> None:
    print(*words, flush=True)


def reported() -> Iterator[str]:
    """Next command to this process."""
    for line in sys.stdin:
        yield line.rstrip("\n")


def _take(here: Experiment, name: str) -> Iterator[Claim]:
    """Claim what is free, until all is done."""
    while left := [one for one in shard_states(here, ["rt"]) if one.state != "done"]:
        for state in left:
            if state.claimable and (mine := claim(here, state, Owner(name, 0, name, 1))):
                yield mine


def work(path: str, name: str, most: str = "") -> None:
    """A worker: every shard it can get, every sample of it; says what it claims and what is safe.

    It answers its first shard's samples at a second line, or when it gets no more: each of several has one.
    After `most` answers it waits for another line.
    """
    answered = 0
    here = Experiment(Path(path))
    orders = reported()
    say("ready")
    next(orders)
    for number, mine in enumerate(_take(here, name)):
        say("claimed", mine.shard.index, mine.attempt)
        if not number:
            next(orders, None)
        for number in range(mine.shard.start, mine.shard.stop):
            if f"s{number}" not in mine.answered:
                mine.record(response(f"s{number}", f"by {name}"))
                mine.acknowledge()
                say("safe", f"s{number}")
                answered += 1
                if str(answered) == most:
                    next(orders, None)
        mine.end("done")


def hold(path: str, index: str) -> None:
    """A worker of one shard, which answers the samples that it is sent."""
    here = Experiment(Path(path))
    state = shard_states(here, ["rt"])[int(index)]
    mine = claim(here, state, Owner("holder", 0, "holder", 1))
    assert mine is not None
    say("claimed", mine.attempt, *sorted(mine.answered))
    for sample in reported():
        try:
            mine.record(response(sample, "by holder"))
            mine.acknowledge()
            say("acknowledged", sample)
        except Fenced as fenced:
            say("fenced:", fenced)
            return
        except OSError as error:
            say("refused:", error.strerror)
    mine.end("done")


def follow(path: str) -> None:
    """A process that follows an experiment to its end."""
    say("ready")
    for events in EventTail(Experiment(Path(path))).follow(pause=0.1):
        for event in events:
            say(event.source, event.seq, event.kind)


def read(path: str) -> None:
    """A process that reads all answers again and again until it is stopped; says which were not whole."""
    here = Experiment(Path(path))
    tail, count = reported(), 0
    stop = Path(path) / "stop"
    say("ready")
    next(tail)
    while not stop.exists():
        for found in (
            {sample: one.text for _, own in answers_of(here, "rt") for sample, one in own.items()},
            {one.sample_id: one.text for piece in pieces_of(here, "rt") for one in piece},
        ):
            count += 1
            if len(found) != here.work.cuts[0].samples:
                say("saw", len(found))
    say("looked", count)


def enter(lock: str, inside: str, times: str) -> None:
    """One of many who want to be alone somewhere; says so where it was not."""
    for _ in range(int(times)):
        with lease.alone(Path(lock), patience=240) as got:
            assert got
            if not create_exclusive(Path(inside), {"who": lock}):
                say("not alone")
            Path(inside).unlink()
    say("done")


def keep(lock: str) -> None:
    """A process that is alone somewhere, and stays until it is sent away."""
    with lease.alone(Path(lock)) as got:
        say("alone" if got else "not alone")
        next(reported(), None)


def make(target: str) -> None:
    """One of many who want a thing that is made once."""

    def build(place: Path) -> None:
        place.mkdir(exist_ok=True)
        time.sleep(0.3)
        (place / "whole").write_text("whole")

    say("ready")
    next(reported())
    made = lease.make_once(Path(target), build, 0.02, resume=True)
    say("made" if made else "waited", (Path(target) / "whole").read_text())


def submit(path: str) -> None:
    """A process that submits an experiment, until it learns that it has."""
    try:
        with submission_lock.alone(Experiment(Path(path))):
            say("alone")
            next(reported(), None)
    except RunFailed as refused:
        say("refused:", refused)


PARTS: dict[str, Callable[..., None]] = {
    one.__name__: one for one in (work, hold, follow, read, enter, keep, make, submit)
}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
