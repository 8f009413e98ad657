"""`python -m hpcbench.environments.rented_run`: rents a machine, runs a command in it, deletes the machine.

Input, output and signals of the command are forwarded, and so is every connection to a Unix socket in its
private folder. However the command ends, the machine is deleted: by this process, by `rented_guard` if this
process was killed, by the machine itself after its deadline, or by the next `prepare`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from hpcbench import secret
from hpcbench.environments.inside import PACKAGES, Bind, private
from hpcbench.environments.packages import packages_for, probed_once
from hpcbench.environments.rented import (
    SPEC,
    TAKEN,
    NotRented,
    Order,
    Rented,
    Spec,
    renting,
    spent,
)
from hpcbench.environments.rented_machine import FAILED, Machine, MirroredFiles
from hpcbench.errors import EnvironmentFault, HpcbenchError

FETCH_SECONDS = 15.0
"""Interval in which files written in the machine are copied here, so that little is lost with it."""

LATE = 15.0
"""Seconds after its deadline in which we or the guard delete a machine; then it deletes itself."""

START_MINUTES = 20.0
"""Longest wait for a machine whose options do not say."""


class _Taken(EnvironmentFault):
    """The machine was preempted, or deleted by another program."""


class _Stopped(Exception):
    """A signal came before the command started."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} before the command ran")


class _Signals:
    """Current effect of a signal: it stops us, waits, or is forwarded to the command in the machine."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        """The machine whose command gets the signals."""
        self.deaf = False
        self._heard: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._handle)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Signals wait inside the block: no response of the API may be lost."""
        self.deaf = True
        yield
        self.deaf = False
        if self._heard is not None:
            raise _Stopped(self._heard)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.deaf:
            self._heard = number
        elif self.machine is not None:
            self.machine.signal(number)
        else:
            raise _Stopped(number)


def main() -> int:
    """Execute the task in the environment variable."""
    spec = Spec.model_validate_json(os.environ.pop(SPEC))
    signals = _Signals()
    started = threading.Event()
    threading.Thread(target=_until_alone, args=(started, os.getppid()), daemon=True).start()
    try:
        return run(spec, signals, started)
    except _Stopped as stopped:
        _say(str(stopped))
        return 128 + stopped.number
    except HpcbenchError as error:
        _say(f"FATAL: {error}")
        return TAKEN if isinstance(error, _Taken) else FAILED


def run(spec: Spec, signals: _Signals, started: threading.Event) -> int:
    """The whole life of a machine; returns the command's exit code.

    Raises:
        EnvironmentFault: there is no such machine, it costs too much, or it disappeared.
    """
    own = private(spec.mounts)
    within = None if own is None else own.source
    with tempfile.TemporaryDirectory(prefix=".rented-", dir=within) as name:
        folder = Path(name)
        with _Lease(spec, signals) as lease, lease.rent(folder) as machine:
            try:
                return _inside(spec, machine, signals, lease, started)
            except HpcbenchError as error:  # at any step: it can be taken at any time
                if time.time() > lease.deadline or lease.lives():
                    raise
                raise _Taken(
                    "the rented machine is gone: preempted, or deleted by another program"
                ) from error


def _inside(
    spec: Spec, machine: Machine, signals: _Signals, lease: _Lease, started: threading.Event
) -> int:
    """Prepare the machine, and run the command in it."""
    machine.connect(lease.reachable_until, lease.lives)
    left = max(0, round(lease.deadline + LATE - time.time()))
    machine.lay_out(spec.mounts, lease.machines.end_at(left))
    for mount in spec.mounts:
        if mount.read_only:
            machine.send(mount)
    packages = _packages(spec, machine)
    machine.send(Bind(str(packages), PACKAGES, read_only=True))
    return _command(spec, machine, signals, lease, started)


def _command(
    spec: Spec, machine: Machine, signals: _Signals, lease: _Lease, started: threading.Event
) -> int:
    """Start the command, serve it until it ends, copy its files here."""
    written = MirroredFiles([mount for mount in spec.mounts if not mount.read_only], machine)
    own = private(spec.mounts)
    process = machine.start(spec, own.target if own else "/")
    signals.machine = machine
    started.set()
    fetched, forwarded = time.monotonic(), False
    try:
        while process.poll() is None:
            if time.time() > lease.deadline:
                raise EnvironmentFault(
                    "the rented machine's time is used up: it has reached max_cost or max_hours",
                    remedy="answers are kept; raise the limit in container.options, then resume",
                )
            due = time.monotonic() - fetched > FETCH_SECONDS
            if own is not None and (due or not forwarded):
                forwarded |= machine.forward(own)
            if due:
                with contextlib.suppress(EnvironmentFault):  # only the last fetch must succeed
                    written.fetch()
                fetched = time.monotonic()
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    if process.returncode == FAILED and machine.lost():
        raise EnvironmentFault("the connection to the rented machine broke")
    written.fetch(last=True)
    return process.returncode


class _Lease:
    """A machine, from before its request until its deletion is verified."""

    def __init__(self, spec: Spec, signals: _Signals) -> None:
        self._spec, self._signals, self._cache = spec, signals, Path(spec.cache)
        self.machines = renting(spec.kind).machines_of(spec.options)
        key = self.machines.account().get("key")
        for name in [name for name, value in os.environ.items() if key and key in value]:
            del os.environ[name]  # no child needs it
        self._rented = Rented.by_me(spec.kind)
        self._started_at = time.time()
        self._done = False
        self._guard: subprocess.Popen[bytes]
        self.deadline = 0.0
        """Unix time at which the machine must be gone."""

    def __enter__(self) -> _Lease:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "hpcbench.environments.rented_guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        with self._guard.stdout as answer:
            if not answer.readline():  # nothing is rented without the guard
                raise EnvironmentFault("the process that guards the rented machine does not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signals.deaf = True
        assert self._guard.stdin is not None
        try:
            if self._rented.id is not None:
                self.machines.give_back(self._rented.id)
                self._rented.close(self._cache)
                self._end()
        except EnvironmentFault as fault:
            if error is None:
                raise
            _say(f"FATAL: {fault}")
        finally:
            # Without the word `done` the guard keeps trying after our end.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._guard.stdin.close()
                self._guard.wait(10 if self._done else 0)

    @property
    def reachable_until(self) -> float:
        """Unix time by which the machine must be reachable."""
        minutes = float(self._spec.options.get("start_minutes") or START_MINUTES)
        return min(self.deadline, self._started_at + 60 * minutes)

    def rent(self, folder: Path) -> Machine:
        """Rent the machine, unless the worker's money is spent.

        Raises:
            EnvironmentFault: no machine is available, or not at this price.
        """
        max_cost = float(self._spec.options["max_cost"])
        left = max_cost - spent(self._cache, self._rented)
        if left <= 0:
            raise EnvironmentFault(
                f"earlier machines of this worker have cost max_cost = {max_cost:g} USD",
                remedy="find out why they ended (see above), then resume, or raise max_cost",
            )
        self._rented.write(self._cache)
        account = dict(self.machines.account())
        self._tell(kind=self._spec.kind, account=account, name=self._rented.name)
        order = Order(
            image=self._spec.image,
            gpus=self._spec.gpus,
            name=self._rented.name,
            asked_at=self._started_at,
            left=left,
            folder=folder,
            know=self._know,
            waiting=self._signals.waiting,
        )
        try:
            host = self.machines.rent(order)
        except NotRented:
            self._rented.forget(self._cache)
            self._end()
            raise
        return Machine(folder, host, self.machines.image_environment)

    def lives(self) -> bool:
        """Whether the machine still runs; True if its provider cannot be asked."""
        try:
            return self._rented.id is None or self.machines.lives(self._rented.id)
        except EnvironmentFault:
            return True

    def _know(self, **more: Any) -> None:
        """Record known facts for the guard and other processes."""
        self._rented = self._rented.model_copy(update=more)
        self.deadline = self._rented.deadline or self.deadline
        self._tell(**more)
        self._rented.write(self._cache)

    def _end(self) -> None:
        """Report that the machine is verified to be gone."""
        self._tell(done=True)
        self._done = True

    def _tell(self, **words: Any) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the guard was killed; we still run
            self._guard.stdin.write(json.dumps(words).encode() + b"\n")
            self._guard.stdin.flush()


def _packages(spec: Spec, machine: Machine) -> Path:
    """Packages for the Python of the image, which is probed once; else for that of this machine."""
    cache = Path(spec.cache)
    if not spec.image:
        return packages_for(machine.probe("the machine"), cache, spec.requirements)
    stored = cache / spec.kind / f"{spec.image.rpartition(':')[2]}.probe.json"
    probed = probed_once(stored, lambda: machine.probe(spec.image))
    return packages_for(probed, cache, spec.requirements)


def _until_alone(started: threading.Event, parent: int) -> None:
    """Stop the preparation if the worker is gone, even by kill -9; later the end of its pipe says so."""
    while not started.wait(1):
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def _say(line: str) -> None:
    print(secret.mask(line), file=sys.stderr, flush=True)  # noqa: T201 - the worker's log


if __name__ == "__main__":
    sys.exit(main())
