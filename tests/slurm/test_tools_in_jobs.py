"""Tools of agents in an image, in jobs of Slurm: snippets of a model, and real servers of the protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
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
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(900)]

CLOCK, GIT = "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"

SERVERS = """\
ARG BASE
FROM $BASE
RUN apt-get update && apt-get install -y --no-install-recommends git nodejs python3
COPY servers.tgz /opt/
RUN tar -C /opt -xzf /opt/servers.tgz
RUN git config --system --add safe.directory /opt/book && git init -q -b main /opt/book && cd /opt/book \\
    && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m "the first page"
"""
"""A recipe of an image with the programs that servers from PyPI and npm need."""

OF_SERVERS = [
    ["git_log", {"repo_path": "/opt/book", "max_count": 1}],
    ["git_create_branch", {"repo_path": "/opt/book", "branch_name": "b"}],
    ["git_status", {"repo_path": "/etc"}],
    ["get-sum", {"a": 19, "b": 23}],
    ["get-sum", {"a": "many", "b": 23}],
    ["get-tiny-image", {}],
]

WHERE = "import os\nprint(os.path.isdir('/.singularity.d'), 6 * 7, 'HPCBENCH_HOME' in os.environ)"

CALLS = [
    ["python", {"code": WHERE}],
    ["convert_time", {
        "source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo",
    }],
    ["get_current_time", {"timezone": "Middle/Earth"}],
]  # fmt: skip


@pytest.fixture
def drill(lab: Lab, python_with_agents: Path, shared_cache: Path) -> Iterator[Drill]:
    one = Drill(lab, python_with_agents, lab.new_directory("tools"), shared_cache)
    yield one
    one.end()
    shutil.rmtree(one.folder, ignore_errors=True)


def set_container(drill: Drill, reference: str, **fields: object) -> None:
    """Let the user's site use an image of the lab's registry, which has no TLS; set further fields."""
    profile = drill.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    site = yaml.safe_load(profile.read_text())
    registry = reference.removeprefix("docker://").partition("/")[0]
    site.setdefault("container", {}).update({"insecure_registries": [registry], **fields})
    profile.write_text(yaml.safe_dump(site))


def test_snippets_and_a_server_from_pypi_run_in_an_image_on_a_node(
    drill: Drill, image: str
) -> None:
    set_container(drill, image)
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


@pytest.fixture
def servers(drill: Drill, lab: Lab) -> Path:
    """A recipe of the image for servers, in a folder of the user's; the site's settings for its build."""
    reference, digest = lab.base_image()
    folder = drill.folder / "servers"
    folder.mkdir()
    (folder / "Dockerfile").write_text(SERVERS)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, EVERYTHING]
    subprocess.run(npm, check=True)
    subprocess.run(
        ["tar", "-C", folder, "-czf", folder / "servers.tgz", "node_modules"], check=True
    )
    subprocess.run(["chown", "-R", "hpcuser:hpcuser", folder], check=True)
    base = f"{reference.removeprefix('docker://')}@{digest}"
    set_container(drill, reference, build_args={"BASE": base})
    return folder / "Dockerfile"


@pytest.mark.campaign
def test_servers_from_pypi_and_npm_run_in_an_image_of_a_recipe_on_a_node(
    drill: Drill, servers: Path
) -> None:
    drill.script(answer_ms=[1, 3], calls=OF_SERVERS)
    git = {
        "command": ["python", "-m", "mcp_server_git", "--repository", "/opt/book"],
        "packages": [GIT],
    }
    script = "/opt/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    every = {"command": ["node", script, "stdio"]}
    image = {"image": str(servers)}
    tools = [
        {"name": "git", "mcp": git | image, "only": ["git_log", "git_status", "git_create_branch"]},
        {"name": "everything", "mcp": every | image, "only": ["get-sum", "get-tiny-image"]},
    ]

    run = drill.submit(drill.plan({"agent": {"tools": tools}}, shard_size=20))
    run.wait()

    assert exits(run) == {"answered": SAMPLES}
    found = defaultdict(set)
    for line in lines(run):
        if "intent" in line:
            assert line["intent"]["tool"] == "git_create_branch", "a server's tool may do anything"
            continue
        for call, result in zip(line["reply"]["calls"], line["results"], strict=True):
            found[call["tool"], result["kind"]].add((result["text"], len(result["images"])))
    assert {*found} == {
        ("git_log", "ok"), ("git_create_branch", "error"), ("git_status", "error"),
        ("get-sum", "ok"), ("get-sum", "arguments"), ("get-tiny-image", "ok"),
    }, found  # fmt: skip
    ((log, _),) = found["git_log", "ok"]
    assert "the first page" in log
    ((branch, _),) = found["git_create_branch", "error"]
    assert "could not be obtained" in branch, "nothing is written in an image"
    ((elsewhere, _),) = found["git_status", "error"]
    assert "/etc" in elsewhere
    ((total, _),) = found["get-sum", "ok"]
    assert "42" in total
    assert {images for _, images in found["get-tiny-image", "ok"]} == {1}
    seen = json.loads((run.path / "manifest.json").read_text())["tools"]["numbers"]
    assert {*seen["locked"]} == {
        "git_log",
        "git_status",
        "git_create_branch",
        "get-sum",
        "get-tiny-image",
    }
