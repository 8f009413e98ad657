"""The images in the cache, and the verbs about them; real builds: `tests/apptainer`."""

from __future__ import annotations

import json
import os
import tarfile
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.environments.images import (
    BuiltImage,
    Record,
    built_images,
    file_digest,
    known_file_digest,
    note,
    restore,
    same_source,
    save,
    unfinished,
)  # fmt: skip
from hpcbench.environments.packages import SUMS, Probe, probed_once, saved_wheels
from hpcbench.errors import UserError
from hpcbench.files.hashing import hash_file
from tests.help_examples import example
from tests.unit.command import Cli
from tests.unit.small import experiment, record

DAY = 86400
WRAPPER = dict.fromkeys(("aiohttp", "httptools", "prometheus-client", "pydantic", "uvicorn"), "99")
"""Packages that the wrapper needs: an image that has them takes no packages along."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    (tmp_path / "home/cache/images").mkdir(parents=True)
    return tmp_path / "home/cache"


def an_image(cache: Path, letter: str, days: float = 0, size: int = 1000) -> BuiltImage:
    """As `prepare` leaves one, but for its content."""
    sif = cache / "images" / f"{letter * 64}-0123456789ab.sif"
    sif.write_bytes(letter.encode() * size)
    reference, digest = f"docker://registry/{letter}/engine:1", f"sha256:{letter * 64}"
    note(sif, reference, "docker", f"registry@{digest}", digest, "apptainer version 1.4.5", 21.5)
    engine = {"vllm": "0.12.0", "torch": "2.9.0", "pip": "25"}
    probe = Probe("3.12.3", "2.39", "x86_64", "", {**engine, **WRAPPER})
    sif.with_suffix(".probe.json").write_text(json.dumps(asdict(probe)))
    used = time.time() - days * DAY
    os.utime(sif.with_suffix(".json"), (used, used))
    return next(image for image in built_images(cache) if image.path == sif)


def test_images_are_listed_with_what_is_in_them(cache: Path, cli: Cli) -> None:
    an_image(cache, "a", days=3)
    an_image(cache, "b")
    text = cli("images", "list")
    assert text.index("bbbbbbbbbbbb") < text.index("aaaaaaaaaaaa"), "used last first"
    assert "docker://registry/a/engine:1" in text
    assert "vllm 0.12.0" in text
    found = cli.json("images", "list", "--json")
    assert found[0]["digest"] == "sha256:" + "b" * 64
    assert found[0]["probe"]["python"] == "3.12.3"


@pytest.mark.parametrize("name", ["aaaa", "sha256:aaaa", "registry/a/engine"])
def test_an_image_is_shown_by_its_digest_or_its_source(cache: Path, cli: Cli, name: str) -> None:
    an_image(cache, "a")
    an_image(cache, "b")
    text = cli(*example("images show vllm-openai", {"vllm-openai": name}))
    assert "docker://registry/a/engine:1 (docker)" in text
    assert "in 22 s by apptainer version 1.4.5" in text
    assert "3.12.3, x86_64, glibc 2.39" in text
    assert "matches several images" in cli.err("images", "show", "engine")


def test_an_image_that_was_noted_is_not_hashed_again(cache: Path) -> None:
    image = an_image(cache, "a")
    image.path.write_bytes(b"changed")
    record = note(image.path, "another", "docker", "x", "sha256:x", "tool", 1.0)
    assert record == image.record


@pytest.mark.parametrize(
    ("content", "label", "damage"),
    [
        (b"a" * 1000, "a" * 64, None),
        (b"a" * 999 + b"b", "a" * 64, "its bytes differ from the image that was built"),
        (b"a" * 1000, "c" * 64, "its label is"),
    ],
)
def test_damage_is_reported(cache: Path, content: bytes, label: str, damage: str | None) -> None:
    image = an_image(cache, "a")
    image.path.write_bytes(content)
    found = image.damage(lambda path: f"sha256:{label}")
    assert found == damage or (damage is not None and found is not None and damage in found)


def test_what_is_not_used_goes_and_what_an_experiment_runs_in_stays(cache: Path, cli: Cli) -> None:
    old, needed, new = an_image(cache, "a", 40), an_image(cache, "b", 50), an_image(cache, "c")
    running = experiment(cache.parent, [record("1")])
    manifest = json.dumps({"environments": {"x": {"path": str(needed.path)}}})
    running.manifest_file.write_text(manifest)
    (cache / "images/tmp-12-x.sif").write_bytes(b"half")
    text = cli("images", "prune", "--older", "30", "--dry-run")
    assert old.path.exists()
    assert cli("images", "prune", "--older", "30") == text
    assert [image.name for image in built_images(cache)] == [new.name, needed.name]
    assert unfinished(cache) == []
    assert not old.path.with_suffix(".probe.json").exists()
    cli("images", "prune", "--free", "1")
    assert [image.name for image in built_images(cache)] == [needed.name]


def test_pruning_takes_nothing_from_a_restore_at_work(
    cache: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_image(cache, "a")
    bundle = tmp_path / "one.tar"
    cli("images", "save", "aaaa", "--out", bundle)
    found: list[list[Path]] = []

    def looks(path: Path) -> str:
        found.append(unfinished(cache))
        return hash_file(path)

    monkeypatch.setattr("hpcbench.environments.images.hash_file", looks)
    assert len(restore(bundle, cache)) == 1
    assert found == [[]]
    assert not list((cache / "images").glob("*.lock"))


def test_a_record_that_is_damaged_is_no_traceback(cache: Path, cli: Cli) -> None:
    an_image(cache, "a").path.with_suffix(".json").write_text("{")
    assert "aaaaaaaaaaaa" in cli("images", "list")
    assert cli("images", "show", "aaaa")


DAMAGE = ["", "[", "[]", "7", "{}", "[" * 100_000, '{"unknown": 1}', "\0" * 200]
"""Contents of a file after a power cut, and by another version."""


@pytest.mark.parametrize("text", DAMAGE)
def test_what_is_remembered_of_an_image_is_found_again_where_its_file_is_damaged(
    tmp_path: Path, text: str
) -> None:
    stored, asked = tmp_path / "image.probe.json", Probe("3.11.2", "2.36", "x86_64", "", {})
    stored.write_text(text)
    assert probed_once(stored, lambda: asked) == asked
    assert probed_once(stored, pytest.fail) == asked

    sif = tmp_path / "image.sif"
    sif.write_bytes(b"SIF")
    (tmp_path / "images").mkdir()
    digest = file_digest(sif, tmp_path)
    (noted,) = (tmp_path / "images").iterdir()
    noted.write_text(text)
    assert known_file_digest(sif, tmp_path) is None
    assert file_digest(sif, tmp_path) == digest == known_file_digest(sif, tmp_path)

    stored.write_text(text)
    assert BuiltImage(sif, None).probe is None


def test_an_image_is_found_by_the_name_of_its_definition(
    cache: Path, tmp_path: Path, cli: Cli
) -> None:
    definition = tmp_path / "config/hpcbench/images/cuda12.yaml"
    definition.parent.mkdir(parents=True)
    reference = f"reference: docker://registry/a/engine:1\ndigest: sha256:{'a' * 64}\n"
    definition.write_text(f"name: cuda12\n{reference}")
    one = an_image(cache, "a")
    an_image(cache, "b")
    assert one.path.name in cli("images", "show", "cuda12")


def test_images_go_to_another_cluster_in_one_file(
    cache: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = an_image(cache, "a"), an_image(cache, "b")
    bundle = tmp_path / "two.tar"
    cli("images", "save", "aaaa", "bbbb", "--out", bundle)
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "elsewhere"))
    said = cli.err(*example("images restore images.tar", {"images.tar": bundle}), code=0)
    assert said == f"reading {bundle}\n"
    there = tmp_path / "elsewhere/cache"
    assert {image.name for image in built_images(there)} == {one.name, two.name}
    assert {image.record for image in built_images(there)} == {one.record, two.record}
    assert one.record is not None
    found = same_source(there, one.record.digest, "docker")
    assert found is not None
    assert found.read_bytes() == one.path.read_bytes()
    assert same_source(there, one.record.digest, "oci-archive") is None
    assert [path.name for path in (there / "images").iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.parametrize(("umask", "readers"), [("077", 0), ("027", 0o040), ("007", 0o040)])
def test_the_sites_umask_holds_for_images_that_are_restored(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: str, readers: int
) -> None:
    an_image(cache, "a")
    bundle, there = tmp_path / "one.tar", tmp_path / "elsewhere"
    assert main(("images", "save", "aaaa", "--out", str(bundle))) == 0
    profile = tmp_path / "config/hpcbench/sites/default.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f'name: default\nhome: {there}\numask: "{umask}"\n')
    monkeypatch.delenv("HPCBENCH_HOME")
    before = os.umask(0o022)
    try:
        assert main(("images", "restore", str(bundle))) == 0
    finally:
        os.umask(before)
    files = [path.stat().st_mode & 0o177 for path in there.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert set(files) == {readers}  # only the owner writes: images are code
    assert there.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("how", ["cut", "flipped", "other", "empty"])
def test_a_bundle_that_was_damaged_is_refused_whole(
    cache: Path, tmp_path: Path, cli: Cli, how: str
) -> None:
    image = an_image(cache, "a", size=50_000)
    bundle = tmp_path / "one.tar"
    cli("images", "save", "aaaa", "--out", bundle)
    image.remove()
    data = bundle.read_bytes()
    if how == "cut":
        data = data[:20_000]
    elif how == "flipped":
        data = data.replace(b"a" * 30_000, b"a" * 29_999 + b"b")
    else:
        data = b"hello" * 500 if how == "other" else b""
    bundle.write_bytes(data)
    assert str(bundle) in cli.err("images", "restore", bundle)
    assert built_images(cache) == []


def test_a_bundle_writes_nowhere_but_among_the_images(cache: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "evil.tar"
    with tarfile.open(bundle, "w") as tar:
        for name in ("../evil.sif", "/tmp/evil.sif", "x.sif"):
            tar.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo(f"{'a' * 64}-0123456789ab.sif")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match="holds no images"):
        restore(bundle, cache)
    assert list((cache / "images").iterdir()) == []


def test_a_label_that_is_not_there_is_no_damage_where_the_bytes_are_known(cache: Path) -> None:
    """Singularity labels nothing that it builds from an archive."""
    image = an_image(cache, "a")
    assert image.damage(lambda path: None) is None
    assert (
        image.damage(lambda path: "sha256:other")
        == f"its label is sha256:other, not sha256:{'a' * 64}"
    )
    image.path.write_bytes(b"other")
    assert image.damage(lambda path: None) == "its bytes differ from the image that was built"
    image.path.with_suffix(".json").unlink()
    (unknown,) = built_images(cache)
    assert unknown.damage(lambda path: None) == f"its label is None, not sha256:{'a' * 64}"


def test_an_image_whose_python_never_ran_here_is_named_when_it_is_saved(
    cache: Path, tmp_path: Path, cli: Cli
) -> None:
    an_image(cache, "a").path.with_suffix(".probe.json").unlink()
    warned = cli.err("images", "save", "aaaa", "--out", tmp_path / "bundle.tar", code=0)
    assert "warning: aaaaaaaaaaaa goes without the wrapper's packages" in warned


def test_packages_beside_an_image_are_restored_only_as_they_were_saved(
    cache: Path, tmp_path: Path
) -> None:
    image, wheels, bundle = an_image(cache, "a"), tmp_path / "wheels", tmp_path / "one.tar"
    wheels.mkdir()
    (wheels / "aiohttp-3.9-py3-none-any.whl").write_bytes(b"a wheel")
    hashed = hash_file(wheels / "aiohttp-3.9-py3-none-any.whl")
    (wheels / SUMS).write_text(f"{hashed}  aiohttp-3.9-py3-none-any.whl\n")
    assert image.probe is not None
    place = saved_wheels(image.probe, cache)
    save([image], bundle, wheels={place.name: wheels})
    for _ in range(2):  # the second time in place of the first
        restore(bundle, cache)
        assert {path.name for path in place.iterdir()} == {path.name for path in wheels.iterdir()}
    assert not list((cache / "images").glob("tmp-*"))
    (wheels / SUMS).write_text(f"{'0' * 64}  aiohttp-3.9-py3-none-any.whl\n")
    save([image], bundle, wheels={place.name: wheels})
    with pytest.raises(UserError, match="the Python packages .* differ from the saved ones"):
        restore(bundle, cache)


@pytest.mark.parametrize(
    ("reference", "transport", "pinned"),
    [
        ("docker://host/name:1", "docker", "docker://host/name:1@sha256:aa"),
        ("docker://host/name@sha256:aa", "docker", "docker://host/name@sha256:aa"),
        ("oci-archive:/some/file.tar", "oci-archive", "oci-archive:/some/file.tar"),
    ],
)
def test_a_restored_image_is_named_so_that_no_registry_is_asked(
    reference: str, transport: str, pinned: str
) -> None:
    made = Record(reference, transport, "origin", "sha256:aa", "apptainer", 0.0, 0.0, "hash")
    assert made.pinned == pinned
