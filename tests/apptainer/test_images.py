"""A Docker reference becomes a SIF, as an ordinary user, with what the wrapper needs beside it."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.help_examples import example
from tests.remote.conftest import free_port, running
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

PREPARE = """
import json, sys, time
from dataclasses import asdict
from pathlib import Path
from hpcbench import environments
from hpcbench.schema.site import ContainerSite
site = ContainerSite(program=sys.argv[3], insecure_registries=(sys.argv[1].split("/")[2],))
since = time.monotonic()
found = environments.prepare(sys.argv[1], Path(sys.argv[2]), site)
print(json.dumps({**asdict(found), "seconds": time.monotonic() - since}))
"""

RUN = """
import json, os, subprocess, sys
from pathlib import Path
from hpcbench import environments
from hpcbench.plugins import Environment
from hpcbench.schema.site import ContainerSite
environment = Environment(**json.loads(sys.argv[1]))
command = environments.wrap(
    environment, ["python", "-c", sys.argv[3]], [sys.argv[2]], {"TOKEN": "a,secret b"}, 0,
    ContainerSite(program=sys.argv[4]),
)
assert not any("secret" in word for word in command.argv)
done = subprocess.run(command.argv, env={**os.environ, **command.env}, input="by pipe\\n", text=True)
sys.exit(done.returncode)
"""


def prepare(
    user: User, image: str, cache: Path, program: Path = Path("apptainer")
) -> dict[str, Any]:
    done = user.lab.run_as_user([user.python, "-c", PREPARE, image, cache, program], timeout=900)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run_inside(
    user: User, found: dict[str, Any], code: str, program: Path
) -> subprocess.CompletedProcess[str]:
    environment = json.dumps({key: found[key] for key in found if key != "seconds"})
    return user.lab.run_as_user([user.python, "-c", RUN, environment, user.folder, code, program])


def test_two_who_want_one_image_build_it_once_and_a_third_waits_for_nothing(
    user: User, python_image: str
) -> None:
    image = python_image  # a small one: others build the engine's
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
    (made,) = (cache / "images").glob("*.sif")
    first = made.stat()
    third = prepare(user, image, cache)

    assert (
        len({json.dumps({**one, "seconds": 0}, sort_keys=True) for one in [*answers, third]}) == 1
    )
    (made,) = (cache / "images").glob("*.sif")
    assert made.stat().st_ino == first.st_ino, "it was built a second time"
    label = user.lab.run_as_user(["apptainer", "inspect", "--json", third["path"]])
    assert third["digest"] in label.stdout


def test_what_runs_in_the_image_sees_engine_packages_and_only_what_was_given(
    user: User, image: str, shared_cache: Path, program: Path
) -> None:
    found = prepare(user, image, shared_cache, program)
    code = (
        "import os, sys, torch, transformers, uvicorn, hpcbench.plugins as p\n"
        "p.load('engines', 'huggingface')\n"
        "print(os.environ['TOKEN'], sys.stdin.readline().strip(), 'SLURM_CONF' in os.environ)\n"
        "sys.exit(7)\n"
    )
    done = run_inside(user, found, code, program)
    assert done.stdout.strip() == "a,secret b by pipe False", done.stderr
    assert done.returncode == 7


RESTORE = """
import sys
from pathlib import Path
from hpcbench.environments.images import restore
restore(Path(sys.argv[4]), Path(sys.argv[2]))
"""


def test_a_bundle_holds_all_that_an_image_needs_without_internet(
    slurm_user: User, image: str, shared_cache: Path
) -> None:
    """The image lacks the wrapper's packages; where it is restored there is no network at all."""
    user = slurm_user
    (built,) = user.json("images", "build", image)
    bundle, cache = user.folder / "bundle.tar", user.folder / "offline"
    saved = user.hpcbench("images", "save", built["digest"], "--out", bundle)
    assert "Python packages of the wrapper" in saved.stderr, saved.stderr
    argv = [user.python, "-c", RESTORE + PREPARE, image, cache, "apptainer", bundle]
    offline = ["unshare", "--net", *user.lab.user_argv(argv)]
    done = subprocess.run(
        offline, cwd=user.folder, env=user.lab.env(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["packages"]).is_relative_to(cache)
    code = "import aiohttp, pydantic, uvicorn, hpcbench.wrapper; print('serves')"
    ran = run_inside(user, found, code, Path("apptainer"))
    assert ran.stdout.strip() == "serves", ran.stderr


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
    assert not list(user.home.glob("experiments/*-*"))


def test_an_image_is_built_listed_and_verified_and_damage_is_found(
    slurm_user: User, image: str, shared_cache: Path, program: Path
) -> None:
    slurm_user.at_site(program=str(program))
    (built,) = slurm_user.json(*example("images build vllm-openai", {"vllm-openai": image}))
    first = Path(built["path"]).stat()
    (again,) = slurm_user.json("images", "build", image)
    assert again["path"] == built["path"]
    assert Path(again["path"]).stat().st_ino == first.st_ino, "it was built a second time"
    (listed,) = [one for one in slurm_user.json("images", "list") if one["path"] == built["path"]]
    assert (listed["reference"], listed["digest"]) == (image, built["digest"])
    assert listed["probe"]["torch"].startswith("2.")
    assert "unchanged" in slurm_user.ok(*example("images verify"), built["digest"])
    assert listed["tool"].startswith(program.name)
    labels = slurm_user.lab.run_as_user([program, "inspect", "--labels", built["path"]]).stdout
    if program.name == "apptainer":
        assert f"hpcbench.build.tool: {listed['tool']}" in labels
        assert "hpcbench.build.time: 20" in labels
    else:  # an address has no labels of ours
        assert f"deffile.from: {image.removeprefix('docker://').replace(':1@', '@')}" in labels

    sif = Path(built["path"])
    with sif.open("r+b") as opened:
        opened.seek(sif.stat().st_size // 2)
        byte = opened.read(1)
        opened.seek(-1, 1)
        opened.write(bytes([byte[0] ^ 1]))
        try:
            opened.flush()
            done = slurm_user.hpcbench("images", "verify", built["digest"])
            assert done.returncode == 1
            assert "its bytes differ from the image that was built" in done.stdout
        finally:
            opened.seek(sif.stat().st_size // 2)
            opened.write(byte)


@pytest.mark.slurm
def test_a_build_runs_where_the_site_wants_builds(
    slurm_user: User, python_image: str, shared_cache: Path
) -> None:
    """As a job, unpacked on the node's own disk."""
    user = slurm_user
    (user.home / "cache").unlink()  # the shared one has the image
    job, place = f"build-{user.folder.name}", user.folder / "of-the-node"
    srun = ["srun", f"--job-name={job}", "--partition=main", "--cpus-per-task=2", "--mem=2G"]
    user.at_site(build_with=srun, build_tmp=f"{place}/$SLURM_JOB_ID")
    (built,) = user.json("images", "build", python_image)
    assert Path(built["path"]).exists()
    ran = user.lab.run_as_user(["sacct", "-nX", f"--name={job}", "--format=JobID,State"])
    number, state = ran.stdout.split()
    assert state == "COMPLETED"
    assert [path.name for path in place.iterdir()] == [number]


REGISTRY = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {home}/registry}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: lab, path: {home}/htpasswd}}}}
"""
PASSWORD = "let me in"
HASHED = "$2b$04$eZtanlwD.xo7cQZTMHaf9eGzab4r2esuu3skHFhltkZsrOOEHxD/6"


def test_a_registry_that_wants_a_login_gets_it_and_no_other_user_sees_it(
    user: User, tmp_path: Path, program: Path
) -> None:
    """The image holds one file: it is built, and only then found to have no Python."""
    port, layout = free_port(), tmp_path / "oci"
    (tmp_path / "config.yml").write_text(REGISTRY.format(home=tmp_path, port=port))
    (tmp_path / "htpasswd").write_text(f"me:{HASHED}\n")
    (tmp_path / "hello").write_text("hello")
    for argv in (
        ["tar", "-C", tmp_path, "-cf", tmp_path / "layer.tar", "hello"],
        ["umoci", "init", "--layout", layout],
        ["umoci", "new", "--image", f"{layout}:1"],
        ["umoci", "raw", "add-layer", "--image", f"{layout}:1", tmp_path / "layer.tar"],
    ):
        subprocess.run(list(map(str, argv)), check=True, capture_output=True)
    reference = f"docker://127.0.0.1:{port}/closed/tiny:1"
    serve = ["docker-registry", "serve", str(tmp_path / "config.yml")]
    for _ in running(serve, port, tmp_path / "log"):
        push = ["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false"]
        push += [f"--dest-creds=me:{PASSWORD}", f"oci:{layout}:1", reference]
        subprocess.run(push, check=True, capture_output=True)
        user.init(insecure_registry=f"127.0.0.1:{port}")
        user.at_site(program=str(program))
        user.environment["DOCKER_CONFIG"] = str(user.folder / "docker")
        refused = user.hpcbench("images", "build", reference)
        assert refused.returncode == 3
        assert "without a login" in refused.stderr
        login = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        (user.folder / "docker").mkdir()
        (user.folder / "docker/config.json").write_text(
            json.dumps({"auths": {f"127.0.0.1:{port}": {"auth": login}}})
        )
        built = user.hpcbench("images", "build", reference)
    assert "Python of" in built.stderr, built.stderr
    assert list((user.home / "cache/images").glob("*.sif"))
    for path in user.home.rglob("*"):
        if path.is_file() and path.suffix != ".sif":
            assert PASSWORD.encode() not in path.read_bytes()
