"""The process of an engine that goes wrong in ways a scripted server cannot: for the supervisor's tests.

It imports aiohttp only where it serves: most of its processes end at once.

`options` says how: `print` a list of texts first (`times`), `late`: then wait half a second, `then` one of

- serve: answer `/health`, and requests with what `answer` says, the request's or ours (`silence`: never,
  `flood`: without an end; `death`: end while a child goes on talking);
- exit:N, signal:N: end so;
- undead: end the first thread, while another lives on;
- escape: serve, with a grandchild outside session and mark that keeps our standard output open.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web


async def serve(socket: str, options: Mapping[str, Any]) -> None:
    """Echo each request's body as an answer, or be silent."""
    from hpcbench.wrapper import lean  # noqa: F401 - before aiohttp, see there
    from aiohttp import web  # isort: skip

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def chat(request: web.Request) -> web.StreamResponse:
        got = json.loads(await request.read())
        answer = got.get("answer", options.get("answer"))
        if answer == "silence":
            await asyncio.sleep(3600)
        if answer == "death":  # with so much still to be read that its last words take long to come
            subprocess.Popen(["yes"])
            os._exit(3)
        if answer == "flood":
            return await flood(request)
        return web.json_response({"got": got, "told": {**options, "tmp": tempfile.gettempdir()}})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, socket).start()
    await asyncio.Event().wait()


async def flood(request: web.Request) -> web.StreamResponse:
    """Events as fast as they are taken."""
    from aiohttp import web

    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    while True:
        await stream.write(b"data: " + b"x" * 2**16 + b"\n\n")


def main() -> None:
    """Follow the orders."""
    socket, options = sys.argv[1], json.loads(sys.argv[2])
    for text in options.get("print", []) * options.get("times", 1):
        sys.stdout.write(text)
        sys.stdout.flush()
    if options.get("late"):
        time.sleep(0.5)
    what, _, number = options.get("then", "serve").partition(":")
    if what == "exit":
        sys.exit(int(number))
    if what == "signal":
        os.kill(os.getpid(), int(number))
    if what == "escape":
        clean = {"PATH": os.environ["PATH"]}
        child = subprocess.Popen(["sleep", "600"], start_new_session=True, env=clean)
        Path(options["pids"]).write_text(str(child.pid))
    if what == "undead":
        threading.Thread(target=asyncio.run, args=(serve(socket, options),)).start()
        while not Path(options["now"]).exists():
            time.sleep(0.01)
        ctypes.CDLL(None).syscall(
            {"x86_64": 60, "aarch64": 93}[platform.machine()], 0
        )  # this thread
    asyncio.run(serve(socket, options))


if __name__ == "__main__":
    main()
