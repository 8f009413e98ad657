"""All that an image may be made from, and the ways a site may want it built and started; real Apptainer."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.environments.failures import is_apptainers_own
from tests.cluster.lab import Lab
from tests.user import User

pytestmark = [pytest.mark.apptainer, pytest.mark.timeout(1200)]

BUILD = """
import sys
from collections.abc import Iterator
from pathlib import Path
from hpcbench.environments.sif import Program
from hpcbench.environments.sources import Source
from hpcbench.schema.site import ContainerSite
reference, cache, registry, target, program = sys.argv[1:]
program = Program.find(ContainerSite(program=program), Path(cache))
source = Source.of(reference, Path(cache), ContainerSite(insecure_registries=(registry,)))
program.build(source, Path(target), lambda line: print(line, file=sys.stderr))
print(source.transport, source.digest, program.label(Path(target)))
"""

RUN = """
import json, os, subprocess, sys
from collections.abc import Iterator
from pathlib import Path
from hpcbench import environments
from hpcbench.schema.site import ContainerSite
reference, cache, folder, site, code = sys.argv[1:]
site = ContainerSite(**json.loads(site))
found = environments.prepare(reference, Path(cache), site)
told = {"path": found.path, "packages": found.packages, "details": dict(found.details)}
print(json.dumps(told), flush=True)
command = environments.wrap(found, ["python", "-c", code], [folder], {}, 0, site)
done = subprocess.run(command.argv, env={**os.environ, **command.env}, stdin=subprocess.DEVNULL)
sys.exit(done.returncode)
"""


@pytest.fixture(scope="module")
def layout(lab: Lab) -> Iterator[Path]:
    """An OCI layout with one image, `1`, of one file.

    In the lab: whenever another pytest begins, it closes the folder of all their temporary folders.
    """
    folder = lab.new_directory("forms")
    (folder / "hello").write_text("hello")
    layout = folder / "oci"
    for argv in (
        ["tar", "-C", folder, "-cf", folder / "layer.tar", "hello"],
        ["umoci", "init", "--layout", layout],
        ["umoci", "new", "--image", f"{layout}:1"],
        ["umoci", "raw", "add-layer", "--image", f"{layout}:1", folder / "layer.tar"],
        ["chmod", "-R", "a+rX", folder],
    ):
        subprocess.run(list(map(str, argv)), check=True, capture_output=True)
    yield layout
    shutil.rmtree(folder)


@pytest.fixture
def registry(image: str) -> str:
    """`HOST:PORT` of the lab's registry, which has no TLS."""
    return image.removeprefix("docker://").partition("/")[0]


def build(user: User, reference: str, registry: str, program: Path) -> tuple[list[str], str]:
    target = user.folder / "built.sif"
    argv = [user.python, "-c", BUILD, reference, user.folder / "cache", registry, target, program]
    done = user.lab.run_as_user(argv, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def run(
    user: User, image: str, cache: Path, code: str, env: dict[str, str] | None = None, **site: Any
) -> subprocess.CompletedProcess[str]:
    site = {"insecure_registries": [image.removeprefix("docker://").partition("/")[0]], **site}
    folder = user.folder / "private"
    folder.mkdir(exist_ok=True)
    shutil.chown(folder, "hpcuser", "hpcuser")
    argv = [user.python, "-c", RUN, image, cache, folder, json.dumps(site), code]
    return user.lab.run_as_user(argv, timeout=900, env=env)


@pytest.mark.parametrize(
    "form", ["oci:{layout}:1", "oci:{layout}", "oci-archive", "docker-archive"]
)
def test_layouts_and_archives_are_built_and_reported_with_their_digest(
    user: User, layout: Path, registry: str, form: str, program: Path
) -> None:
    reference = form.format(layout=layout)
    if form.endswith("archive"):
        archive = layout.parent / f"{program.name}.{form}.tar"  # skopeo adds to none
        copy = ["skopeo", "copy", "--insecure-policy", f"oci:{layout}:1", f"{form}:{archive}"]
        subprocess.run(copy, check=True, capture_output=True)
        archive.chmod(0o644)
        reference = f"{form}:{archive}"
    (transport, digest, label), said = build(user, reference, registry, program)
    assert transport == form.partition(":")[0]
    # SingularityCE labels an image with what it was given: of an archive that is no digest.
    unlabelled = program.name == "singularity" and form.endswith("archive")
    assert label == ("None" if unlabelled else digest)
    assert "Creating SIF file" in said


def test_an_image_that_is_a_sif_in_a_registry_is_pulled_by_its_digest(
    user: User, layout: Path, registry: str, program: Path
) -> None:
    build(user, f"oci:{layout}:1", registry, program)
    name = "".join(filter(str.isalnum, user.folder.name.lower()))  # registries refuse `-_`
    reference = f"oras://{registry}/forms/{name}:1"
    push = [program, "push", "--allow-unsigned", user.folder / "built.sif", reference]
    pushed = user.lab.run_as_user(push)
    assert pushed.returncode == 0, pushed.stderr
    first = (user.folder / "built.sif").read_bytes()
    (user.folder / "built.sif").unlink()
    (transport, digest, _), _ = build(user, reference, registry, program)
    assert (transport, digest[:7]) == ("oras", "sha256:")
    assert (user.folder / "built.sif").read_bytes() == first


def test_an_image_for_another_machine_is_refused_before_it_is_fetched(
    user: User, layout: Path, registry: str, tmp_path: Path
) -> None:
    """An index with one image, for arm64, is what a registry has then."""
    work, name = tmp_path / "oci", f"docker://{registry}/forms/arm:{user.folder.name.lower()}"
    shutil.copytree(layout, work)
    index = json.loads((work / "index.json").read_text())
    index["manifests"][0]["platform"] = {"os": "linux", "architecture": "arm64"}
    index["manifests"][0].pop("annotations", None)
    (work / "index.json").write_text(json.dumps(index))
    inner = work / "blobs/sha256"
    data = json.dumps({**index, "mediaType": "application/vnd.oci.image.index.v1+json"}).encode()
    digest = hashlib.sha256(data).hexdigest()
    (inner / digest).write_bytes(data)
    (work / "index.json").write_text(
        json.dumps(
            {
                "schemaVersion": 2,
                "manifests": [
                    {
                        "mediaType": "application/vnd.oci.image.index.v1+json",
                        "digest": f"sha256:{digest}",
                        "size": len(data),
                        "annotations": {"org.opencontainers.image.ref.name": "arm"},
                    }
                ],
            }
        )
    )
    push = ["skopeo", "copy", "--all", "--insecure-policy", "--dest-tls-verify=false"]
    subprocess.run([*push, f"oci:{work}:arm", name], check=True, capture_output=True)
    user.init(insecure_registry=registry)
    done = user.hpcbench("images", "build", name)
    assert done.returncode == 3
    assert "is not made for this machine, linux/amd64, but for linux/arm64" in done.stderr
    assert not list((user.home / "cache/apptainer").rglob("blobs/sha256/*"))


def test_a_container_without_network_reaches_nothing_but_itself(
    user: User, image: str, shared_cache: Path, registry: str, program: Path
) -> None:
    port, site = int(registry.rpartition(":")[2]), {"program": str(program)}
    code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))"
    assert run(user, image, shared_cache, code, **site).stdout.splitlines()[-1] == "0"
    cut = run(user, image, shared_cache, code, network="none", **site)
    assert cut.stdout.splitlines()[-1] == "111", cut.stderr


def test_packages_beside_an_image_may_be_one_file(
    user: User, image: str, shared_cache: Path, program: Path
) -> None:
    code = "import uvicorn, hpcbench.plugins as p; print(p.load('engines', 'vllm').api, uvicorn.__file__)"
    done = run(user, image, shared_cache, code, squash_packages=True, program=str(program))
    reported, inside = done.stdout.splitlines()
    packages = Path(json.loads(reported)["packages"])
    assert packages.is_file()
    assert inside.startswith("1 /opt/hpcbench/packages/uvicorn/"), done.stderr


def test_the_name_singularity_serves_as_well(user: User, image: str, shared_cache: Path) -> None:
    done = run(user, image, shared_cache, "print('ran')", program="singularity")
    assert done.stdout.splitlines()[-1] == "ran", done.stderr


def test_singularity_builds_again_what_apptainer_compressed_by_zstd(
    user: User, layout: Path, registry: str, image: str
) -> None:
    """The image holds one file: it is built, and only then found to have no Python."""
    user.init(insecure_registry=registry)
    for program in (user.lab.home / "bin/apptainer", user.lab.singularity):
        user.at_site(program=str(program))
        assert "Python of" in user.hpcbench("images", "build", f"oci:{layout}:1").stderr
    built = {image["tool"].partition(" ")[0]: image for image in user.json("images", "list")}
    assert set(built) == {"apptainer", "singularity-ce"}
    assert built["apptainer"]["digest"] == built["singularity-ce"]["digest"]
    done = user.hpcbench("images", "build", built["apptainer"]["path"])
    assert done.returncode == 3
    assert "Singularity cannot read the image: Apptainer compressed it with zstd" in done.stderr


@pytest.mark.campaign  # it packs and unpacks for a minute
def test_without_setuid_singularity_unpacks_what_it_cannot_mount(
    user: User, image: str, shared_cache: Path
) -> None:
    """Debian's squashfuse is too old for it; /dev/fuse is closed as well, as on some nodes."""
    settings = user.folder / "singularity.conf"
    usual = Path("/etc/singularity/singularity.conf")
    settings.write_text(usual.read_text().replace("allow setuid = yes", "allow setuid = no"))
    site = {"program": str(user.lab.singularity)}
    run(user, image, shared_cache, "print('prepared')", **site)
    code = "import os; print('ran', os.getuid(), os.path.exists('/dev/fuse'))"
    argv = [user.python, "-c", RUN, image, shared_cache, user.folder / "private"]
    argv = user.lab.user_argv([*argv, json.dumps(site), code])
    (user.folder / "closed").touch(mode=0o600)
    alone = f"mount --bind {user.folder}/closed /dev/fuse && mount --bind {settings} {usual}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{alone} && exec "$@"', "sh", *map(str, argv)],
        env=user.lab.env(), cwd=user.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("ran"), done.stderr


def test_without_fuse_an_image_is_unpacked_to_be_started(
    user: User, image: str, shared_cache: Path
) -> None:
    """The lab's Apptainer has a C library of its own, which unsquashfs here must be shown: a wrapper does."""
    prefix = user.lab.home / "apptainer"
    program = user.folder / "apptainer"
    program.write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={prefix}/glibc/usr/lib/x86_64-linux-gnu\n"
        f'exec {prefix}/usr/bin/apptainer "$@"\n'
    )
    program.chmod(0o755)
    site = {"program": str(program)}
    run(user, image, shared_cache, "print('prepared')", **site)
    code = "import os; print('ran', os.path.exists('/dev/fuse'))"
    private = user.folder / "private"
    argv = user.lab.user_argv(
        [user.python, "-c", RUN, image, shared_cache, private, json.dumps(site), code]
    )
    closed = f'mount --bind {user.folder}/closed /dev/fuse && exec "$@"'
    (user.folder / "closed").touch(mode=0o600)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", closed, "sh", *map(str, argv)],
        env=user.lab.env(), cwd=user.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not is_apptainers_own(done.returncode, done.stderr), done.stderr
    assert done.stdout.splitlines()[-1].startswith("ran"), done.stderr


def test_where_images_must_be_signed_only_signed_ones_are_taken(
    user: User, image: str, shared_cache: Path, program: Path
) -> None:
    site = {"program": str(program), "signed": True}
    reported = run(user, image, shared_cache, "print('ran')", **site).stdout
    sif = user.folder / "mine.sif"
    shutil.copy(json.loads(reported.splitlines()[0])["path"], sif)
    shutil.chown(sif, "hpcuser", "hpcuser")
    env = {f"{program.name.upper()}_CONFIGDIR": str(user.folder / "keys")}
    unsigned = run(user, str(sif), shared_cache, "print('ran')", env, **site)
    assert "is not signed by a key you have" in unsigned.stderr
    key = [program, "key", "newpair", "--password", "", "--push=false"]
    key += ["--name", "me", "--email", "me@example.org", "--comment", "test"]
    for argv in (key, [program, "sign", sif]):
        done = user.lab.run_as_user(argv, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    signed = run(user, str(sif), shared_cache, "print('ran')", env, **site)
    assert signed.stdout.splitlines()[-1] == "ran", signed.stderr
