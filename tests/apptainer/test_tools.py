"""Tools of agents in a SIF: a server, and snippets of a model; nothing outside is reached."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from PIL import Image

from hpcbench.agents.tool_host import Place, Room
from hpcbench.agents.toolboxes import toolbox_of
from hpcbench.plugins import Environment
from hpcbench.schema.agent import Agent, McpServer, ToolEntry
from hpcbench.schema.definitions import ContainerSite
from tests.apptainer.test_contract import PREPARE
from tests.unit.agents import bad_server
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

LOOK = """
import os, pathlib, socket
def refused(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
found = {
    "in an image": os.path.isdir("/.singularity.d"),
    "home": os.path.exists(HOME),
    "network": refused(lambda: socket.create_connection(("127.0.0.1", PORT), 2)),
    "write": refused(lambda: open("/opt/x", "w")),
    "write image": refused(lambda: open(images[0], "a")),
    "image": len(pathlib.Path(images[0]).read_bytes()),
    "secret": "MY_TOKEN" in os.environ,
}
import json
print(json.dumps(found))
"""


def test_a_server_and_snippets_run_in_an_image_and_reach_nothing(
    user: User, image: str, shared_cache: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = {
        "program": str(program),
        "insecure_registries": [image.removeprefix("docker://").partition("/")[0]],
    }
    done = user.lab.run_as_user(
        [user.python, "-c", PREPARE, image, shared_cache, json.dumps(site)], timeout=900
    )
    assert done.returncode == 0, done.stderr
    environment = Environment(**json.loads(done.stdout.splitlines()[-1]))
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    page = user.folder / "page.png"
    Image.new("L", (50, 50)).save(page)
    script = user.folder / "bad_server.py"
    script.write_text(Path(bad_server.__file__).read_text())
    outside = user.folder / "outside"

    async def work() -> None:
        room = Room(
            environment, ContainerSite.model_validate(site), (f"{user.folder}:{user.folder}:ro",)
        )
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = listening.getsockname()[1]
            env = {"PORT": str(port), "OUTSIDE": str(outside)}
            server = McpServer(command=("python", str(script)), image=image, env=env)
            agent = Agent(
                tools=(ToolEntry(name="python", image=image), ToolEntry(name="shelf", mcp=server))
            )
            said = list[str]()
            box = await toolbox_of(agent, {Place(image): room}, say=said.append)
            try:
                code = f"HOME, PORT = {str(Path.home())!r}, {port}\n{LOOK}"
                result = await box.call("python", {"code": code}, [page], 60)
                assert result.kind == "ok", result
                found = json.loads(result.text)
                assert found.pop("network") in ("ConnectionRefusedError", "OSError")
                assert found == {
                    "in an image": True, "home": False, "write": "OSError", "write image": "OSError",
                    "image": page.stat().st_size, "secret": False,
                }  # fmt: skip
                hung = await box.call("python", {"code": "while True: pass"}, [], 0.5)
                assert hung.kind == "time"
                large = await box.call("python", {"code": "x = bytes(10**11)"}, [], 60)
                assert large.kind == "memory"
                assert (await box.call("look", {"number": 1}, [], 60)).images == (
                    bad_server.PNG,
                ) * 2
                for what in ("connect", "write"):
                    assert (await box.call("do", {"what": what}, [], 60)).kind == "error"
                names = (await box.call("do", {"what": "environment"}, [], 60)).text.split()
                assert "MY_TOKEN" not in names
                assert (await box.call("do", {"what": "die"}, [], 60)).kind == "gone"
                assert (await box.call("do", {"what": "fine"}, [], 60)).text == "fine"
                assert said == ["the server 'shelf' ended; it is started again"]
            finally:
                await box.close()
        assert not outside.exists()

    asyncio.run(work())
