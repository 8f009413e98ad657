"""`python -m hpcbench.wrapper`: serve on a Unix socket, on TCP, or both; beside HTTP also gRPC.

The key that every request must carry is the first line on standard input, whose end then means that the
worker is gone, however it went; or it is in a file that only this user may read. It is in no argument list
and in no environment. Without `--socket` and `--port` there is nothing to serve on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn

from hpcbench import garbage
from hpcbench.wrapper import lean  # noqa: F401 - before aiohttp, see there
from hpcbench.wrapper.app import Wrapper
from hpcbench.wrapper.bodies import BODY_LIMIT
from hpcbench.wrapper.descriptors import allow_many
from hpcbench.wrapper.engine_process import EngineFailed
from hpcbench.wrapper.large_buffers import keep_buffers
from hpcbench.wrapper.masking import Mask, hidden_values
from hpcbench.wrapper.process_tree import Guard
from hpcbench.wrapper.supervisor import SOCKET_BYTES, Supervisor

GRPC_BYTES = 2**31 - 1
"""Longest message of gRPC."""

log = logging.getLogger("hpcbench.wrapper")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, read the key, serve."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench.wrapper", description=__doc__)
    parser.add_argument("--socket", type=Path, help="Unix socket to serve on")
    parser.add_argument("--port", type=int, help="TCP port to serve on; 0: any free one")
    parser.add_argument("--host", default="127.0.0.1", help="address for --port (%(default)s)")
    parser.add_argument("--grpc-socket", type=Path, help="Unix socket to serve gRPC on")
    parser.add_argument(
        "--grpc-port", type=int, help="TCP port to serve gRPC on, at --host; 0: any free one"
    )
    parser.add_argument(
        "--worker-socket", type=Path, help="Unix socket to serve gRPC on to the worker's client"
    )
    parser.add_argument(
        "--tls-certificate", type=Path, help="PEM file: certificate chain for --grpc-port"
    )
    parser.add_argument("--tls-key", type=Path, help="PEM file: key of --tls-certificate")
    parser.add_argument(
        "--web-socket", action="store_true", help="serve WebSocket, too, at /v1/stream"
    )
    parser.add_argument(
        "--request-limit",
        type=int,
        default=BODY_LIMIT,
        help="largest request, bytes (%(default)s)",
    )
    parser.add_argument("--key-file", type=Path, help="file of mode 0600 that holds the key")
    parser.add_argument(
        "--engine-dir", required=True, type=Path, help="node-local folder for the engine's socket"
    )
    parser.add_argument("--log", required=True, type=Path, help="file for the engine's output")
    args = parser.parse_args(argv)
    if args.socket is None and args.port is None:
        parser.error("give --socket, --port, or both")
    for option, port in {"--port": args.port, "--grpc-port": args.grpc_port}.items():
        if port is not None and not 0 <= port < 2**16:
            parser.error(f"{option} {port} is not a port: give 1 to 65535, or 0")
    if args.request_limit < 1:
        parser.error(f"--request-limit {args.request_limit} lets no request pass: give bytes")
    grpc = (args.grpc_socket, args.grpc_port, args.worker_socket)
    if args.request_limit > GRPC_BYTES and any(one is not None for one in grpc):
        what = f"--request-limit {args.request_limit} is more than a message of gRPC may have"
        parser.error(f"{what}: give at most {GRPC_BYTES}, or leave gRPC out")
    if args.grpc_port is None and (args.tls_certificate or args.tls_key):
        parser.error("TLS is of gRPC's port alone: give --grpc-port, too")
    sockets = {
        "--socket": args.socket,
        "--grpc-socket": args.grpc_socket,
        "--worker-socket": args.worker_socket,
    }
    for option, path in sockets.items():
        if path is not None and len(os.fsencode(path)) > SOCKET_BYTES:
            parser.error(f"{option} is longer than {SOCKET_BYTES} bytes: use a shorter path")
    for folder in (
        args.engine_dir,
        args.log.parent,
        *(path.parent for path in sockets.values() if path),
    ):
        if not folder.is_dir():
            parser.error(f"there is no folder {folder}: make it, or name another one")
    try:
        key = read_key_file(args.key_file) if args.key_file else read_key()
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not key:
        parser.error("no key: write it as the first line of standard input, or of --key-file")
    planes = [plane for plane in (_grpc(parser, args), _worker(parser, args)) if plane]
    if args.web_socket and find_spec("websockets") is None:
        parser.error("--web-socket needs the package websockets: pip install 'websockets>=13'")
    garbage.skip_last_collection()
    allow_many()
    keep_buffers()
    mask = Mask([key, *hidden_values({}, os.environ)])
    write_log(mask)
    guard = Guard()  # before the first thread
    supervisor = Supervisor(args.engine_dir, args.log, guard, mask)
    try:
        with contextlib.ExitStack() as open_sockets:
            listeners = []
            if args.socket is not None:
                listeners.append(open_sockets.enter_context(_listen(args.socket)))
            if args.port is not None:
                listeners.append(open_sockets.enter_context(_listen_tcp(args.host, args.port)))
            app = Wrapper(supervisor, key, args.request_limit)
            asyncio.run(
                serve(
                    supervisor,
                    app,
                    listeners,
                    [plane(app, supervisor) for plane in planes],
                    until_stdin_ends=not args.key_file,
                    web_socket=args.web_socket,
                    request_limit=args.request_limit,
                )
            )
    except OSError as error:
        log.error("the wrapper cannot serve: %s", error)
        return 1
    except EngineFailed as error:
        log.error("the wrapper cannot end the engine: %s", error.message)
        return 1
    return 0


Plane = contextlib.AbstractAsyncContextManager[None]
"""A server beside HTTP, while it is open."""


Opens = Callable[[Wrapper, Supervisor], Plane]
"""Opens a server beside HTTP."""


def _worker(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Opens | None:
    """A function that opens the worker's plane; None: it is not asked for."""
    if args.worker_socket is None:
        return None
    try:
        from hpcbench.wrapper import grpc_wire
    except ImportError as error:
        parser.error(f"--worker-socket needs protobuf: {error}")

    @contextlib.asynccontextmanager
    async def opened(app: Wrapper, supervisor: Supervisor) -> AsyncIterator[None]:
        with _listen(args.worker_socket) as listener:
            async with grpc_wire.serving(app.admits, supervisor, listener, args.request_limit):
                yield

    return opened


def _grpc(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Opens | None:
    """A function that opens the gRPC plane; None: it is not asked for, and its packages are not imported."""
    if args.grpc_socket is None and args.grpc_port is None:
        return None
    tls = (args.tls_certificate, args.tls_key)
    if (tls[0] is None) != (tls[1] is None):
        parser.error("--tls-certificate and --tls-key belong together")
    if args.grpc_port is not None and tls[0] is None and not _is_loopback(args.host):
        text = "gRPC beyond this machine needs --tls-certificate and --tls-key"
        parser.error(f"--host {args.host}: {text}")
    for file in tls:
        if file is not None and not file.is_file():
            parser.error(f"there is no file {file}")
    try:
        from hpcbench.wrapper import grpc_server
    except ImportError as error:
        parser.error(f"gRPC needs the packages of the extra `grpc`: {error}")
    if args.grpc_socket is not None:
        _clear(args.grpc_socket)
    address = grpc_server.Address(
        args.grpc_socket, args.host, args.grpc_port, tls if tls[0] is not None else None
    )
    return lambda app, supervisor: grpc_server.serving(
        app.admits, supervisor, address, args.request_limit
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_key() -> str:
    """The first line of standard input, without reading a byte more."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode().strip()


def read_key_file(path: Path) -> str:
    """The first line of a file that only we may read.

    Raises:
        ValueError: other users may read it, or it is not ours.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise ValueError(f"other users may read {path} (mode {mode:04o}): chmod 600 {path}")
        return file.readline().decode().strip()


def write_log(mask: Mask) -> None:
    """Send all of Python's logging to standard error, masked; tracebacks, too."""

    class Masked(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return mask(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Masked("wrapper: %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    log.setLevel(logging.INFO)


async def serve(
    supervisor: Supervisor,
    app: Wrapper,
    listeners: Sequence[socket.socket],
    beside: Sequence[Plane],
    *,
    until_stdin_ends: bool,
    web_socket: bool,
    request_limit: int,
) -> None:
    """Serve until stopped; the engine ends first, so that no open stream delays us."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_ends:
        threading.Thread(target=_until_stdin_ends, args=(loop, stop), daemon=True).start()
    config = uvicorn.Config(
        app,
        lifespan="off",
        # Without it an upgrade is a request like any other.
        ws=_reader_of_frames() if web_socket else "none",
        ws_max_size=request_limit,
        ws_per_message_deflate=False,  # a short message would become one of the limit's size
        ws_ping_interval=30,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    async with contextlib.AsyncExitStack() as planes:
        for plane in beside:
            await planes.enter_async_context(plane)
        serving = asyncio.ensure_future(server.serve(sockets=list(listeners)))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        try:
            await supervisor.close()
        finally:
            server.should_exit = True
            await serving


def _reader_of_frames() -> Any:
    from hpcbench.wrapper.web_socket import reader_of_frames

    return reader_of_frames()


class _Server(uvicorn.Server):
    """Ignores signals: our handlers must end the engine before the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listen(path: Path) -> Iterator[socket.socket]:
    """A listening socket that only its owner may open; removed at the end."""
    _clear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        try:
            listener.listen(2048)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Remove a socket of ours without a listener, the leftover of a killed wrapper."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        status = path.lstat()
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid():
            probe.settimeout(1)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


@contextlib.contextmanager
def _listen_tcp(host: str, port: int) -> Iterator[socket.socket]:
    """A listening TCP socket; the log has its address."""
    kind, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(kind, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        shown = f"[{host}]" if ":" in host else host
        log.info("serving on http://%s:%d", shown, listener.getsockname()[1])
        yield listener


def _until_stdin_ends(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop has closed: we are ending
        loop.call_soon_threadsafe(stop.set)


if __name__ == "__main__":
    sys.exit(main())
