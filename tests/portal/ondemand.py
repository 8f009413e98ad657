"""A stand-in for Open OnDemand's proxy, which takes a site; does what that is published to do.

That is Apache with `mod_ood_proxy` (github.com/OSC/ondemand). What counts for a portal: all of the site is
one origin with TLS; requests below `/node/HOST/PORT/` go to that port of that host with their path as it is,
all others elsewhere; `Host` becomes the portal's own, and what the browser asked stands in
`X-Forwarded-Host`, `-For` and `-Proto`; `X-Forwarded-User` names who is signed in at the site; WebSockets
are passed through.

    python ondemand.py FOLDER HOST PORT ACCOUNT

FOLDER has `cert.pem` and `key.pem`; ACCOUNT is the number of the account that it becomes, as a site's proxy
is not the user's. It prints its port, and then a line for each request: status and path; for the status `-`
where it was not for the portal, `x` where the portal hung up.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

DROPPED = frozenset(
    {"host", "connection", "x-forwarded-host", "x-forwarded-for", "x-forwarded-proto"}
)
ELSEWHERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def proxied(
    host: str, port: int
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What answers a connection of a browser: one request each, so that nothing has to be counted."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            if not path.startswith(f"/node/{host}/{port}/"):
                print("-", path, flush=True)
                writer.write(ELSEWHERE)
                await writer.drain()
                return
            from_portal, to_portal = await asyncio.open_connection("127.0.0.1", port)
            to_portal.write(rewritten(head, host, port))
            upwards = asyncio.ensure_future(passed_on(reader, to_portal))
            # A browser that hangs up ends a stream, too.
            upwards.add_done_callback(lambda _: to_portal.close())
            try:
                status = await from_portal.readline()
                if status or not reader.at_eof():
                    print(status.split(b" ")[1].decode() if status else "x", path, flush=True)
                writer.write(status)
                await passed_on(from_portal, writer)
            finally:
                upwards.cancel()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # a browser that goes away
        finally:
            writer.close()

    return answer


def rewritten(head: str, host: str, port: int) -> bytes:
    """The head of a request as the portal gets it."""
    request, *lines = head.rstrip("\r\n").split("\r\n")
    given = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    upgraded = "upgrade" in given
    kept = [line for line in lines if line.split(":")[0].lower() not in DROPPED]
    added = [
        f"Host: {host}:{port}",
        f"Connection: {'Upgrade' if upgraded else 'close'}",
        f"X-Forwarded-Host: {given['host']}",
        "X-Forwarded-For: 192.0.2.7",
        "X-Forwarded-Proto: https",
        "X-Forwarded-User: somebody",
    ]
    return "\r\n".join([request, *kept, *added, "", ""]).encode("latin-1")


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on every byte as it comes: streams are not held back."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def serve(folder: Path, host: str, port: int, account: int) -> None:
    """Serve until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server = await asyncio.start_server(proxied(host, port), "127.0.0.1", 0, ssl=context)
    os.setuid(account)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
