"""The files of `hpcbench plugins new` work as they are; tests/packages builds and installs them, too."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from _pytest.config.findpaths import determine_setup

from hpcbench import plugins
from hpcbench.cli.plugin_skeletons import package
from hpcbench.cli.plugins import tried
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import EngineSpec
from hpcbench.registry.catalog import KINDS
from hpcbench.registry.source import read, validate
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.site import ContainerSite
from hpcbench.testing import check
from tests.unit.command import Cli

PLAN = """\
name: small
run_tasks:
  - {name: v, ml_task: vqa, model: tiny-vlm, dataset: demo_vqa, prompt: demo_vqa}
"""


def written(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of a new package."""
    name = f"new_{kind}"
    for path, text in package(kind, name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return getattr(importlib.import_module(f"hpcbench_{name}"), f"New{kind.capitalize()}")


@pytest.mark.parametrize("kind", plugins.REQUIRED)
def test_what_is_written_for_a_kind_keeps_its_contract(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(kind, written(kind, tmp_path, monkeypatch), tmp_path / "room")


def test_pytest_in_a_package_takes_no_settings_of_a_folder_above(tmp_path: Path) -> None:
    """A package in a clone of hpcbench: the clone's settings need plugins of pytest that its author lacks."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntimeout = 100\n")
    project = tmp_path / "mine" / "pyproject.toml"
    project.parent.mkdir()
    project.write_text(package("metrics", "mine")["pyproject.toml"])
    root, file, _, _ = determine_setup(
        inifile=None,
        override_ini=None,
        args=[],
        rootdir_cmd_arg=None,
        invocation_dir=project.parent,
    )
    assert (root, file) == (project.parent, project)


@pytest.mark.parametrize("kind", plugins.REQUIRED)
def test_the_readme_shows_a_definition_that_is_valid(kind: str, tmp_path: Path) -> None:
    """The YAML by which a package's README uses the plugin."""
    readme = package(kind, "mine")["README.md"]
    place, block = re.findall(r"^It is used by (.*):\n\n((?:    .*\n)+)", readme, re.MULTILINE)[0]
    file = tmp_path / "used.yaml"
    text = dedent(block)
    if found := re.search(r"`(\w+)/\S+\.yaml`", place):
        model = KINDS[found[1]]
    else:
        model, text = ExperimentPlan, PLAN + text
    file.write_text(text)
    validate(model, read(file))
    assert "mine" in text


class OnSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=30)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def ask(path: Path, method: str, url: str, body: object = None) -> tuple[int, str]:
    with contextlib.closing(OnSocket(path)) as connection:
        connection.request(method, url, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def is_ready(path: Path) -> bool:
    """As the wrapper asks: a refused connection is an engine that is still loading."""
    try:
        return ask(path, "GET", "/health")[0] == 200
    except OSError:
        return False


def test_a_name_that_hpcbench_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli.err("plugins", "new", "metrics", "anls")
    assert "hpcbench has a metric plugin 'anls' already (choose another name" in said
    assert not [*tmp_path.iterdir()]


def test_an_error_inside_a_plugin_is_found_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written("metrics", tmp_path, monkeypatch)
    file = tmp_path / "hpcbench_broken.py"
    lines = (tmp_path / f"{whole.__module__}.py").read_text().splitlines()
    row = next(number for number, line in enumerate(lines) if "return len(wanted" in line)
    lines[row] = "        raise KeyError('total')"
    file.write_text("\n".join(lines))
    broken = getattr(importlib.import_module("hpcbench_broken"), whole.__name__)
    monkeypatch.setattr(plugins, "load", lambda kind, name: broken)
    problems = [one["problem"] for one in tried("metrics", "broken") if one["problem"]]
    assert f"KeyError: 'total' ({file}:{row + 1})" in problems


@pytest.mark.long
def test_the_new_engine_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = written("engines", tmp_path, monkeypatch)
    place = tmp_path / "s"
    spec = EngineSpec("/models/m", "m", str(place), options={"prefix": "pages: "})
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(engine().launch_command(spec).argv, env=environ) as server:
        try:
            deadline = time.monotonic() + 60
            while not is_ready(place):
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            assert json.loads(ask(place, "GET", "/v1/models")[1])["data"][0]["id"] == "m"
            content = [
                {"type": "text", "text": "?"},
                {"type": "image_url", "image_url": {"url": "x"}},
            ]
            body = {"model": "m", "messages": [{"role": "user", "content": content}]}
            whole = json.loads(ask(place, "POST", "/v1/chat/completions", body)[1])
            assert whole["choices"][0]["message"]["content"] == "pages: 1"
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            status, text = ask(place, "POST", "/v1/chat/completions", body)
            *events, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
            assert (status, done) == (200, "[DONE]")
            deltas = [one["choices"] for one in map(json.loads, events)]
            assert deltas[0][0]["delta"]["content"] == "pages: 1"
            assert json.loads(events[-1])["usage"]["completion_tokens"] == 2
        finally:
            server.terminate()


def test_the_new_environment_starts_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = written("environments", tmp_path, monkeypatch)()
    program = tmp_path / "with-modules"
    program.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    program.chmod(0o755)
    site = ContainerSite()
    said = print
    found = environment.prepare(f"new_environments:{program}", tmp_path, site, (), said)
    command = environment.wrap(found, ["python", "-c", "print(6 * 7)"], (), {}, 0, site)
    assert subprocess.check_output(command.argv).strip() == b"42"
    with pytest.raises(EnvironmentFault, match="no program"):
        environment.prepare("new_environments:no-such-program", tmp_path, site, (), said)
