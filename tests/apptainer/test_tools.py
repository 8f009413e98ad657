"""Tools of agents in a SIF: a server, and snippets of a model; nothing outside is reached."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.unit.agents import bad_server
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]


def test_a_server_and_snippets_run_in_an_image_and_reach_nothing(
    user: User, image: str, shared_cache: Path, program: Path, python_with_agents: Path
) -> None:
    folder = user.folder / "tools"
    folder.mkdir()
    Image.new("L", (50, 50)).save(folder / "page.png")
    script = Path(__file__).with_name("tools_in_image.py")
    for path in (script, Path(bad_server.__file__)):
        shutil.copy(path, folder)
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, "hpcuser", "hpcuser")
    private = user.folder / "private.txt"
    private.write_text("of the user")
    given = {
        "image": image, "cache": str(shared_cache), "folder": str(folder),
        "private": str(private),
        "site": {
            "program": str(program),
            "insecure_registries": [image.removeprefix("docker://").partition("/")[0]],
        },
    }  # fmt: skip
    done = user.lab.run_as_user(
        [python_with_agents, folder / script.name, json.dumps(given)],
        env={"MY_TOKEN": "s3cret"}, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    kind, text, _ = found["snippet"]
    assert kind == "ok", text
    assert json.loads(text) == {
        "in an image": True, "private": False, "no network": True, "write": "OSError",
        "write image": "OSError", "image": (folder / "page.png").stat().st_size, "secret": False,
    }  # fmt: skip
    kinds = {name: result[0] for name, result in found.items() if name not in ("snippet", "said")}
    assert kinds == {
        "hung": "time", "large": "memory", "look": "ok", "connect": "error", "write": "error",
        "environment": "ok", "die": "gone", "fine": "ok",
    }, found  # fmt: skip
    assert found["look"][2] == 2
    assert "MY_TOKEN" not in found["environment"][1].split()
    assert found["said"] == ["the server 'shelf' ended; it is started again"]
    assert not (folder / "outside").exists()
