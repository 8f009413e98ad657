"""Tools of agents in an image, in jobs of Slurm: snippets of a model, and a real server of the protocol."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.lab import Lab
from tests.faults.conftest import SAMPLES
from tests.faults.payments import exits, lines
from tests.slurm.drill import Drill

# tests/apptainer/test_tools.py has both without Slurm, with a server of the tests.
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.apptainer,
    pytest.mark.campaign,
    pytest.mark.timeout(900),
]

CLOCK = "mcp-server-time==2026.10.19"

WHERE = "import os\nprint(os.path.isdir('/.singularity.d'), 6 * 7, 'HPCBENCH_HOME' in os.environ)"

CALLS = [
    ["python", {"code": WHERE}],
    ["convert_time", {
        "source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo",
    }],
    ["get_current_time", {"timezone": "Middle/Earth"}],
]  # fmt: skip


@pytest.fixture
def drill(lab: Lab, python_with_agents: Path, shared_cache: Path, image: str) -> Iterator[Drill]:
    one = Drill(lab, python_with_agents, lab.new_directory("tools"), shared_cache)
    profile = one.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    site = yaml.safe_load(profile.read_text())
    registry = image.removeprefix("docker://").partition("/")[0]
    site.setdefault("container", {})["insecure_registries"] = [registry]
    profile.write_text(yaml.safe_dump(site))
    yield one
    one.end()
    shutil.rmtree(one.folder, ignore_errors=True)


def test_snippets_and_a_server_from_pypi_run_in_an_image_on_a_node(
    drill: Drill, image: str
) -> None:
    drill.script(answer_ms=[1, 3], calls=CALLS)
    server = {"command": ["python", "-m", "mcp_server_time"], "packages": [CLOCK], "image": image}
    tools = [{"name": "python", "image": image}, {"name": "clock", "mcp": server}]

    run = drill.submit(drill.plan({"agent": {"tools": tools}}, shard_size=20))
    run.wait()

    assert exits(run) == {"answered": SAMPLES}
    texts = defaultdict(set)
    for line in lines(run):
        for call, result in zip(line["reply"]["calls"], line["results"], strict=True):
            texts[call["tool"], result["kind"]].add(result["text"])
    assert texts.pop(("python", "ok")) == {"True 42 False"}
    (zone,) = texts.pop(("get_current_time", "error"))
    assert "Middle/Earth" in zone
    times = texts.pop(("convert_time", "ok"))
    assert {json.loads(one)["target"]["timezone"] for one in times} == {"Asia/Tokyo"}
    assert not texts
    seen = json.loads((run.path / "manifest.json").read_text())["tools"]["numbers"]
    assert {*seen["locked"]} == {"python", "convert_time", "get_current_time"}
    assert seen["origins"]["convert_time"].startswith("mcp-time ")
