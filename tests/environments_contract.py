"""Duties of every environment manager to its caller, whatever programs run in.

    class TestIt(EnvironmentContract):
        @pytest.fixture
        def subject(self, tmp_path) -> Subject: ...

A manager states what it cannot do by its nature in the Subject; those parts are skipped with that reason.
Programs are started as the worker starts them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite
from tests.campaign import first

MARK = "HPCBENCH_CONTRACT"
"""Variable of every program started here, by which what is left of it is found."""

NO_OUTPUT = 120.0
"""Seconds until a program that says nothing is given up."""

LISTENS = """
import os, signal, sys
def heard(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    os._exit(3)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
    signal.signal(number, heard)
print("ready", flush=True)
sys.stdin.read()
"""


def nothing(mark: str) -> Sequence[str]:
    """Nothing is kept beside processes."""
    return ()


@dataclass(frozen=True)
class Subject:
    """A prepared environment, and what can be asked of its manager."""

    environment: Environment
    folder: Path
    """Exists, may be written; what is mounted lies in it."""
    container: ContainerSite = field(default_factory=ContainerSite)
    isolates: bool = True
    """Whether programs see only the variables and folders they were given."""
    leftovers: Callable[[str], Sequence[str]] = nothing
    """Containers or pods that are still there of programs with that mark, beside processes."""

    def start(
        self,
        argv: Sequence[str],
        mounts: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        mark: str = "",
        gpus: int = 0,
    ) -> subprocess.Popen[bytes]:
        command = environments.wrap(
            self.environment, argv, mounts, {MARK: mark, **(env or {})}, gpus, self.container
        )
        return self.spawn(command)

    def spawn(self, command: Command) -> subprocess.Popen[bytes]:
        """Start a command as the worker does."""
        return subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    @contextlib.contextmanager
    def running(
        self,
        code: str,
        mounts: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        mark: str = "",
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A Python program that has said its first line, `ready`."""
        process = self.start(["python", "-c", code], mounts, env, mark)
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first == b"ready\n", (first, process.stderr and process.stderr.read())
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(
        self,
        code: str,
        mounts: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        data: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """A Python program, to its end."""
        process = self.start(["python", "-c", code], mounts, env)
        out, err = process.communicate(data, timeout=NO_OUTPUT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def left(self, mark: str) -> list[str]:
        """Everything that is still there of programs with that mark."""
        wanted = f"{MARK}={mark}".encode()
        found = []
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if place.name.isdigit() and wanted in (place / "environ").read_bytes().split(b"\0"):
                    found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        # A process that has ended and was not waited for yet has no command line.
        return [*filter(None, found), *self.leftovers(mark)]


def wait_until_nothing_is_left(subject: Subject, mark: str, seconds: float) -> None:
    """Fail if there is still something of a program after so long."""
    end = time.monotonic() + seconds
    while left := subject.left(mark):
        assert time.monotonic() < end, left
        time.sleep(0.1)


class EnvironmentContract:
    """Subclass it, and give the fixture `subject`."""

    @pytest.fixture
    def subject(self) -> Subject:
        raise NotImplementedError

    def test_output_comes_line_by_line_while_the_program_runs(self, subject: Subject) -> None:
        code = (
            "import sys\n"
            "print('ready', flush=True)\n"
            "for line in sys.stdin:\n    print('heard', line.strip(), flush=True)\n"
        )
        with subject.running(code) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for word in (b"one", b"two"):
                process.stdin.write(word + b"\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"heard " + word + b"\n"
                assert process.poll() is None

    def test_both_outputs_arrive_whole_and_apart(self, subject: Subject) -> None:
        code = (
            "import sys\n"
            "sys.stdout.buffer.write(bytes(range(256)) * 8192)\n"
            "sys.stderr.buffer.write(b'e' * 100_000)\n"
        )
        done = subject.run(code)
        assert done.stdout == bytes(range(256)) * 8192
        assert done.stderr == b"e" * 100_000
        assert done.returncode == 0

    def test_the_exit_code_is_the_programs(self, subject: Subject) -> None:
        assert subject.run("raise SystemExit(7)").returncode == 7

    @pytest.mark.parametrize("number", first(1, [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2]))
    def test_a_signal_reaches_the_program(self, subject: Subject, number: signal.Signals) -> None:
        # SingularityCE loses a signal that comes before the first process of the container listens for it,
        # and the program may be ready earlier: so it is sent until it is heard.
        with subject.running(LISTENS) as process:
            assert process.stdout is not None
            end = time.monotonic() + NO_OUTPUT
            while time.monotonic() < end:
                process.send_signal(number)
                if select.select([process.stdout], [], [], 5)[0]:
                    break
            else:
                pytest.fail("the program never heard it")
            assert process.stdout.readline().decode() == f"{number.name}\n"
            assert process.wait(NO_OUTPUT) == 3

    def test_stdin_and_its_end_arrive(self, subject: Subject) -> None:
        data = os.urandom(300_000)
        code = (
            "import hashlib, sys\n"
            "print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), 'after the end')\n"
        )
        done = subject.run(code, data=data)
        assert done.stdout.decode().split() == [
            hashlib.sha256(data).hexdigest(), "after", "the", "end"
        ]  # fmt: skip

    def test_a_variable_arrives_as_it_was_given(self, subject: Subject) -> None:
        value = "a,b 'c' \"d\" $HOME é=\nf"
        code = "import os, sys; sys.stdout.buffer.write(os.environb[b'GIVEN'])"
        assert subject.run(code, env={"GIVEN": value}).stdout.decode() == value

    def test_no_value_of_a_variable_is_in_an_argument_list(self, subject: Subject) -> None:
        value = f"secret-{secrets.token_hex(8)}"
        code = "import sys; print('ready', flush=True); sys.stdin.read()"
        with subject.running(code, env={"GIVEN": value}):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    assert value.encode() not in place.read_bytes(), place

    def test_of_the_callers_variables_nothing_is_seen(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not subject.isolates:
            pytest.skip("this manager runs programs on the host itself")
        monkeypatch.setenv("NOT_GIVEN", "x")
        done = subject.run("import os; print('NOT_GIVEN' in os.environ)")
        assert done.stdout.strip() == b"False"

    def test_what_is_mounted_may_be_written_and_read_only_not(self, subject: Subject) -> None:
        writable, data = subject.folder / "writable", subject.folder / "data"
        writable.mkdir()
        data.mkdir()
        (data / "file").write_text("read")
        mounts = [str(writable), f"{data}:{'/data' if subject.isolates else data}:ro"]
        inside = "/data" if subject.isolates else str(data)
        code = (
            f"print(open({inside + '/file'!r}).read())\n"
            f"open({str(writable / 'made')!r}, 'w').write('written')\n"
            f"try:\n    open({inside + '/made'!r}, 'w')\n"
            "except OSError as error:\n    print(error.strerror)\n"
        )
        done = subject.run(code, mounts)
        assert done.returncode == 0, done.stderr
        assert (writable / "made").read_text() == "written"
        assert (writable / "made").owner() == writable.owner()
        if not subject.isolates:
            assert done.stdout.split() == [b"read"]
            pytest.skip("this manager runs programs on the host itself: they may write")
        assert done.stdout.splitlines() == [b"read", b"Read-only file system"]
        assert [path.name for path in data.iterdir()] == ["file"]

    def test_links_of_a_mounted_folder_lead_where_they_did(self, subject: Subject) -> None:
        blobs, snapshot = subject.folder / "hub/blobs", subject.folder / "hub/snapshots/1"
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        (blobs / "abc").write_text("weights")
        (snapshot / "model").symlink_to("../../blobs/abc")
        done = subject.run(f"print(open({str(snapshot / 'model')!r}).read())", [f"{snapshot}::ro"])
        assert done.stdout == b"weights\n", done.stderr

    def test_a_folder_that_is_not_there_is_one_clear_line(self, subject: Subject) -> None:
        if not subject.isolates:
            pytest.skip("this manager mounts nothing")
        missing = subject.folder / "missing"
        with pytest.raises(EnvironmentFault) as reported:
            subject.start(["python", "-V"], [f"{missing}:/data:ro"])
        assert str(missing) in str(reported.value)
        assert "\n" not in str(reported.value)

    def test_python_is_the_environments_own(self, subject: Subject) -> None:
        code = "import platform, sys; print(platform.python_version(), sys.executable)"
        version, path = subject.run(code).stdout.decode().split()
        assert version == subject.environment.details["python"]
        if not subject.isolates:
            assert path == subject.environment.path

    def test_what_was_mounted_just_in_time_can_be_imported(self, subject: Subject) -> None:
        code = (
            "import aiohttp, prometheus_client, pydantic, uvicorn, hpcbench.wrapper, hpcbench.plugins as p\n"
            "print(p.load('engines', 'vllm').api)\n"
        )
        done = subject.run(code)
        assert done.stdout == b"1\n", done.stderr

    @pytest.mark.parametrize("how", first(2, ["end", "SIGKILL", "SIGTERM"]))
    def test_nothing_is_left_behind(self, subject: Subject, how: str) -> None:
        mark = secrets.token_hex(8)
        # As hpcbench's wrapper does: it has a child, and ends when its stdin does.
        code = (
            "import subprocess, sys, os\n"
            "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
            "print('ready', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subject.running(code, mark=mark) as process:
            assert subject.left(mark)
            if how == "end":
                process.communicate(timeout=NO_OUTPUT)
            else:
                process.send_signal(signal.Signals[how])
                process.wait(NO_OUTPUT)
            wait_until_nothing_is_left(subject, mark, 30)
