"""A client and the scripted server that it talks to."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from hpcbench.inference.client import Client
from hpcbench.schema.records import Image, Message, Request, Response
from tests.mock_openai import Script, Server

TEXT = "".join(Script().pieces)


@contextlib.asynccontextmanager
async def talking(
    script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Client, Server]]:
    """A client with these options, and a server that plays this script."""
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = f"{folder}/s"
        async with Server(path, script) as server, Client(path, "key", "tiny", **options) as client:
            yield client, server


def request(name: str = "s1", *images: Image, timeout: float = 30, **generation: Any) -> Request:
    """A question with images."""
    messages = (Message("system", "Be short."), Message("user", "What is ünder?", images))
    return Request(name, messages, {"max_tokens": 9, "seed": None, **generation}, timeout)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end, 30 s at the most."""
    return asyncio.run(asyncio.wait_for(work, 30))


def answer(
    script: Script, *images: Image, timeout: float = 30, **options: Any
) -> tuple[Response, Server]:
    """One question asked of a server with this script."""

    async def one() -> tuple[Response, Server]:
        async with talking(script, **options) as (client, server):
            return await client.ask(request("s1", *images, timeout=timeout)), server

    return run(one())
