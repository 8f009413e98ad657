"""Calls of tools in an image, as an ordinary user: `python tools_in_image.py JSON` prints what each gave."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

from hpcbench import environments
from hpcbench.agents.tool_host import PreparedEnvironment, ToolEnvironment
from hpcbench.agents.toolboxes import toolbox_of
from hpcbench.schema.agent import Agent, McpServer, ToolEntry
from hpcbench.schema.site import ContainerSite

LOOK = """
import json, os, pathlib, socket
def refused(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps({
    "in an image": os.path.isdir("/.singularity.d"),
    "private": os.path.exists(PRIVATE),
    "no network": refused(lambda: socket.create_connection(("127.0.0.1", PORT), 2)) != "done",
    "write": refused(lambda: open("/opt/x", "w")),
    "write image": refused(lambda: open(images[0], "a")),
    "image": len(pathlib.Path(images[0]).read_bytes()),
    "secret": "MY_TOKEN" in os.environ,
}))
"""


async def work(given: dict[str, Any]) -> dict[str, Any]:
    site = ContainerSite.model_validate(given["site"])
    environment = environments.prepare(given["image"], Path(given["cache"]), site)
    folder = Path(given["folder"])
    room = PreparedEnvironment(environment, site, (f"{folder}:{folder}:ro",))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        env = {"PORT": str(port), "OUTSIDE": str(folder / "outside")}
        command = ("python", str(folder / "bad_server.py"))
        server = McpServer(command=command, image=given["image"], env=env)
        agent = Agent(
            tools=(
                ToolEntry(name="python", image=given["image"]),
                ToolEntry(name="shelf", mcp=server),
            )
        )
        said = list[str]()
        box = await toolbox_of(agent, {ToolEnvironment(given["image"]): room}, say=said.append)
        found = dict[str, Any]()

        async def call(name: str, tool: str, seconds: float = 60, **arguments: object) -> None:
            result = await box.call(tool, arguments, [folder / "page.png"], seconds)
            found[name] = [result.kind, result.text[:2000], len(result.images)]

        try:
            code = f"PRIVATE, PORT = {given['private']!r}, {port}\n{LOOK}"
            await call("snippet", "python", code=code)
            await call("hung", "python", 0.5, code="while True: pass")
            await call("large", "python", code="x = bytes(10**11)")
            await call("look", "look", number=1)
            for what in ("connect", "write", "environment", "die", "fine"):
                await call(what, "do", what=what)
        finally:
            await box.close()
    return {**found, "said": said}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(json.loads(sys.argv[1])))))
