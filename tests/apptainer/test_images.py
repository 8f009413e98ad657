"""A Docker reference becomes a SIF, as an ordinary user, with what the wrapper needs beside it."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(600)]

PREPARE = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from hpcbench import environments
from hpcbench.schema.documents import ContainerSite
site = ContainerSite(insecure_registries=(sys.argv[1].split("/")[2],))
begun = time.monotonic()
found = environments.prepare(sys.argv[1], Path(sys.argv[2]), site)
print(json.dumps({**asdict(found), "seconds": time.monotonic() - begun}))
"""

RUN = """
import json, os, subprocess, sys
from pathlib import Path
from hpcbench import environments
from hpcbench.plugins import Environment
from hpcbench.schema.documents import ContainerSite
environment = Environment(**json.loads(sys.argv[1]))
command = environments.wrap(
    environment, ["python", "-c", sys.argv[3]], [sys.argv[2]], {"TOKEN": "a,secret b"}, 0,
    ContainerSite(),
)
assert not any("secret" in word for word in command.argv)
done = subprocess.run(command.argv, env={**os.environ, **command.env}, input="by pipe\\n", text=True)
sys.exit(done.returncode)
"""


def prepare(user: User, image: str, cache: Path) -> dict[str, Any]:
    done = user.lab.run_as_user([user.python, "-c", PREPARE, image, cache], timeout=400)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run_inside(user: User, found: dict[str, Any], code: str) -> subprocess.CompletedProcess[str]:
    environment = json.dumps({key: found[key] for key in found if key != "seconds"})
    return user.lab.run_as_user([user.python, "-c", RUN, environment, user.folder, code])


def test_two_who_want_one_image_build_it_once_and_a_third_waits_for_nothing(
    user: User, image: str
) -> None:
    cache = user.folder / "cache"
    answers: list[dict[str, Any]] = []
    both = [
        threading.Thread(target=lambda: answers.append(prepare(user, image, cache)))
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    third = prepare(user, image, cache)

    assert (
        len({json.dumps({**one, "seconds": 0}, sort_keys=True) for one in [*answers, third]}) == 1
    )
    assert len(list((cache / "images").glob("*.sif"))) == 1
    assert third["seconds"] < min(one["seconds"] for one in answers) / 3
    label = user.lab.run_as_user(["apptainer", "inspect", "--json", third["path"]])
    assert third["digest"] in label.stdout


def test_what_runs_in_the_image_sees_engine_packages_and_only_what_was_given(
    user: User, image: str, shared_cache: Path
) -> None:
    found = prepare(user, image, shared_cache)
    code = (
        "import os, sys, torch, transformers, fastapi, hpcbench.plugins as p\n"
        "p.load('engines', 'huggingface')\n"
        "print(os.environ['TOKEN'], sys.stdin.readline().strip(), 'SLURM_CONF' in os.environ)\n"
        "sys.exit(7)\n"
    )
    done = run_inside(user, found, code)
    assert done.stdout.strip() == "a,secret b by pipe False", done.stderr
    assert done.returncode == 7


def test_an_image_the_registry_does_not_know_is_one_clear_line(user: User, image: str) -> None:
    user.init(insecure_registry=image.removeprefix("docker://").partition("/")[0])
    user.use_image(image.partition("@")[0].replace("tiny-engine", "not-there"))
    user.environment["RUN_MODE"] = "dev"  # prod takes no tag
    plan = user.plan("gone", [{"name": "x", "ml_task": "vqa", "model": "tiny-vlm",
                               "dataset": "demo_vqa", "prompt": "demo_vqa"}])  # fmt: skip
    done = user.hpcbench("submit", plan, "--registry", user.registry)
    assert done.returncode == 3
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("hpcbench: the registry does not know docker://")
    assert user.lab.squeue() == []
