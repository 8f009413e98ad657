"""Tools that do all that a tool must not do, for tests of the process that runs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.agents.frames import HEAD, pack
from hpcbench.plugins import ToolContext, ToolError

PNG = b"\x89PNG\r\n\x1a\nnot really"


class Bad:
    """Does what it is asked to do, however bad."""

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = False

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid")

        what: str = Field(max_length=20)
        number: int = 0

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)

    def call(self, arguments: Any, context: ToolContext) -> Any:
        return getattr(self, arguments.what)(arguments.number, context)

    def fine(self, number: int, context: ToolContext) -> Any:
        return f"fine {number}"

    def both(self, number: int, context: ToolContext) -> Any:
        return ["seen", PNG, "and", PNG + b"2"]

    def cannot(self, number: int, context: ToolContext) -> Any:
        context.image(number)
        raise ToolError("not on Sundays")

    def raises(self, number: int, context: ToolContext) -> Any:
        return 1 // number

    def hangs(self, number: int, context: ToolContext) -> Any:
        time.sleep(100)

    def spins(self, number: int, context: ToolContext) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    def exits(self, number: int, context: ToolContext) -> Any:
        os._exit(number)

    def leaves(self, number: int, context: ToolContext) -> Any:
        sys.exit("enough")

    def crashes(self, number: int, context: ToolContext) -> Any:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        import ctypes

        ctypes.string_at(0)

    def closes(self, number: int, context: ToolContext) -> Any:
        os.closerange(0, 1000)
        time.sleep(100)

    def prints(self, number: int, context: ToolContext) -> Any:
        block = b"x" * 2**20
        for _ in range(1024):
            os.write(1, block)
        print("x" * 1000, file=sys.stderr)
        return "printed"

    def wrong(self, number: int, context: ToolContext) -> Any:
        return [None, {"a": 1}, [], b"no image", 7, ("text", 3)][number]

    def large(self, number: int, context: ToolContext) -> Any:
        return "x" * 2**28 if number == 0 else [PNG + bytes(2**25)] * 4

    def takes(self, number: int, context: ToolContext) -> Any:
        return str(len(bytearray(100 * 2**30)))

    def grows(self, number: int, context: ToolContext) -> Any:
        held = []
        while True:
            held.append(bytearray(2**24))

    def forks(self, number: int, context: ToolContext) -> Any:
        """Children and grandchildren in sessions of their own, which hold all that they inherited."""
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.setsid()
                time.sleep(1000)
        if number:
            os._exit(number)
        return str(os.getpid())

    def threads(self, number: int, context: ToolContext) -> Any:
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return "started"

    def kills_host(self, number: int, context: ToolContext) -> Any:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)

    def calls_out(self, number: int, context: ToolContext) -> Any:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            socket.create_connection(server.getsockname(), 1).close()
        return "connected"

    def connects(self, number: int, context: ToolContext) -> Any:
        socket.create_connection(("127.0.0.1", number), 1).close()
        return "connected"

    def writes(self, number: int, context: ToolContext) -> Any:
        outside = (
            "/dev/shm/hpcbench-outside" if number else self.options["outside"]
        )  # another mount
        Path(outside).write_text("written")
        return "written"

    def fills(self, number: int, context: ToolContext) -> Any:
        with Path("filled").open("wb") as file:
            for _ in range(number):
                file.write(bytes(2**20))
        return "filled"

    def leaves_files(self, number: int, context: ToolContext) -> Any:
        found = [str(path) for path in Path().iterdir()]
        Path("kept").write_text("x")
        return f"{found} {Path.cwd() == context.folder}"

    def environment(self, number: int, context: ToolContext) -> Any:
        return " ".join(sorted(os.environ))

    def spies(self, number: int, context: ToolContext) -> Any:
        return Path(f"/proc/{number}/environ").read_bytes().decode()

    def garbles(self, number: int, context: ToolContext) -> Any:
        """Write into all that is open, as if it were a result."""
        texts = [b"{}", b"[]", b"[" * 5000, b'{"kind":"ok"}', b'{"parts":["a"]}', b"\xff"]
        whole = b"".join(HEAD.pack(len(one), 0) + one for one in texts[number:])
        for descriptor in range(3, 50):
            with contextlib.suppress(OSError):
                os.write(descriptor, whole if number < len(texts) else b"\xff" * 100)
        time.sleep(0.5)
        return "garbled"

    def deep(self, number: int, context: ToolContext) -> Any:
        return self.deep(number, context)

    def lies(self, number: int, context: ToolContext) -> Any:
        """Send a result in the name of the process that runs it, before that one does."""
        frame = sys._getframe()
        while "asked" not in frame.f_locals:
            assert frame.f_back is not None
            frame = frame.f_back
        call, text = frame.f_locals["asked"]["call"], ["mine", "x" * 2**21, "half \ud83d", "", ""]
        said = {"call": call, "kind": "ok", "text": text[number], "seconds": 1e300}
        files = [b"no image"] if number == 3 else [b""] * (10**6 if number == 4 else 0)
        for descriptor in range(3, 50):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as mine:
                mine.sendall(pack(said, files))
        time.sleep(0.5)
        os._exit(0)

    def many(self, number: int, context: ToolContext) -> Any:
        return [PNG] * 1000

    def digs(self, number: int, context: ToolContext) -> Any:
        """Leave folders deeper than Python's recursion and the kernel's paths go."""
        for _ in range(3000):
            Path("d").mkdir()
            os.chdir("d")
        return "dug"

    def litters(self, number: int, context: ToolContext) -> Any:
        for place in range(10**6):
            Path(f"f{place}").touch()
        return "littered"

    def looks_beside(self, number: int, context: ToolContext) -> Any:
        """Count the folders with its file; it waits, so that another call is there."""
        (context.folder / "mine").touch()
        time.sleep(number)
        return str(len([*context.folder.parent.glob("*/mine")]))

    def fills_and_waits(self, number: int, context: ToolContext) -> Any:
        with contextlib.suppress(OSError):
            self.fills(2000, context)
        time.sleep(number)
        return "filled"

    def becomes(self, number: int, context: ToolContext) -> Any:
        os.execvp("sleep", ["sleep", "100"])  # noqa: S606

    def interrupts(self, number: int, context: ToolContext) -> Any:
        raise [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError][number]

    def mutters(self, number: int, context: ToolContext) -> Any:
        """Raise an error whose text cannot be read or written."""
        raise [Mute, ToolMute, ValueError("half \ud83d"), ToolError("half \ud83d")][number]

    def goes_on(self, number: int, context: ToolContext) -> Any:
        return Endless("x")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class ToolMute(Mute, ToolError):
    pass


class Endless(list[str]):
    def __iter__(self) -> Iterator[str]:
        while True:
            yield "x" * 2**16


class Stateless(Bad):
    """The same in a process that stays."""

    stateless: ClassVar[bool] = True
    seen: ClassVar[list[int]] = []

    def pid(self, number: int, context: ToolContext) -> Any:
        self.seen.append(number)
        return f"{os.getpid() if number == 0 else 0} {len(self.seen)}"


class Slow(Bad):
    """Cannot be constructed."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        raise ValueError("no table")


class Silent(Bad):
    __doc__ = None


class Untrusted(Bad):
    """Runs code of a model."""

    untrusted: ClassVar[bool] = True
