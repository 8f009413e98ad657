"""A Unix socket's server on a port of this machine's loopback interface, for programs that only know URLs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_BLOCK = 2**16


@contextlib.asynccontextmanager
async def on_loopback(socket: str) -> AsyncIterator[int]:
    """Pass bytes on to the server of a socket; gives the port.

    Every user of this machine can connect, so the server must ask for a key. Connections end with the
    context.
    """
    passing = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        passing.add(task)
        try:
            await _pass_on(socket, reader, writer)
        finally:
            passing.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(passing):
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)


async def _pass_on(socket: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Both directions of one connection, until both have ended or one is broken."""
    with contextlib.suppress(OSError):
        try:
            to_read, to_write = await asyncio.open_unix_connection(socket)
        except OSError:  # the server is gone: so is the connection
            writer.close()
            return
        ways = [
            asyncio.ensure_future(_copy(reader, to_write)),
            asyncio.ensure_future(_copy(to_read, writer)),
        ]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
            for one in (writer, to_write):
                one.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(_BLOCK):
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
