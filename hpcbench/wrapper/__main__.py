"""`python -m hpcbench.wrapper`: serve on a Unix socket until standard input ends.

The first line on standard input is the key every request must carry; so it stands in no argument list, no
environment and no file. The end of standard input means that the worker is gone, however it went.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from hpcbench.wrapper.app import Wrapper
from hpcbench.wrapper.family import Guard
from hpcbench.wrapper.supervisor import SOCKET_BYTES, Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, read the key, serve."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench.wrapper", description=__doc__)
    parser.add_argument("--socket", required=True, type=Path, help="Unix socket to serve on")
    parser.add_argument(
        "--engine-dir", required=True, type=Path, help="node-local folder for the engine's socket"
    )
    parser.add_argument("--log", required=True, type=Path, help="file for the engine's output")
    args = parser.parse_args(argv)
    if len(os.fsencode(args.socket)) > SOCKET_BYTES:
        parser.error(f"--socket is longer than {SOCKET_BYTES} bytes")
    for folder in (args.engine_dir, args.log.parent, args.socket.parent):
        if not folder.is_dir():
            parser.error(f"there is no folder {folder}")
    key = read_key()
    if not key:
        parser.error("the first line on standard input must be the key")
    guard = Guard()  # before the first thread
    supervisor = Supervisor(args.engine_dir, args.log, guard)
    asyncio.run(serve(supervisor, Wrapper(supervisor, key), args.socket))
    return 0


def read_key(descriptor: int = 0) -> str:
    """The first line, and not a byte more."""
    line = b""
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode().strip()


async def serve(supervisor: Supervisor, app: Wrapper, path: Path) -> None:
    """Serve until told to stop; the engine ends first, so that no open stream holds us up."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=_until_stdin_ends, args=(loop, stop), daemon=True).start()
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    with _listen(path) as listener:
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        try:
            await supervisor.unload()
        finally:
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """Leaves signals alone: ours must end the engine before the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listen(path: Path) -> Iterator[socket.socket]:
    """A listening socket that nobody but its owner may open; removed at the end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    try:
        listener.listen(2048)
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _until_stdin_ends(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop has closed: we are ending anyway
        loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main())
