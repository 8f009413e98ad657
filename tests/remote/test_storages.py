"""Behaviour that all storages share, seen on real servers."""

from __future__ import annotations

import gc
import hashlib
import os
import secrets
import shutil
import subprocess
import time
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcbench.data.copies import Cache
from hpcbench.data.s3 import S3Storage
from hpcbench.data.sftp import SftpStorage
from hpcbench.data.storage import FileStorage, open_storage
from hpcbench.data.sync import SmartSync
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import Model
from hpcbench.schema.site import Site
from hpcbench.testing import check
from tests.remote.conftest import SECRET, Server, settle
from tests.remote.hub import TOKEN, hub

NAMES = ("a.txt", "sub/b c.bin", "sub/Счёт №1.png", "deep/er/#100%.json")


@pytest.fixture(params=["file", "s3", "sftp", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    """A fresh folder on each kind of server."""
    if request.param == "file":
        (tmp_path / "served").mkdir()
        return Server(f"file://{tmp_path}/served", tmp_path / "served", {}, 0)
    name = {"http": "web"}.get(request.param, request.param)
    server: Server = request.getfixturevalue(name)
    fresh = uuid.uuid4().hex[:8]
    (server.folder / fresh).mkdir()
    slash = "/" if request.param == "http" else ""
    return Server(
        f"{server.url}/{fresh}{slash}", server.folder / fresh, server.options, server.port
    )


def fill(place: Server, tmp_path: Path) -> dict[str, bytes]:
    """Put files there, through the server where it takes them."""
    contents = {name: secrets.token_bytes(3000 + 10 * len(name)) for name in NAMES}
    for name, data in contents.items():
        if place.url.startswith("http"):
            (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (place.folder / name).write_bytes(data)
        else:
            (tmp_path / "one").write_bytes(data)
            open_storage(place.url, place.options).put(tmp_path / "one", place.url, name)
    return contents


def test_files_are_listed_and_read_whole_and_in_part(place: Server, tmp_path: Path) -> None:
    contents = fill(place, tmp_path)
    storage = open_storage(place.url, place.options)
    listed = {file.path: file for file in storage.list(place.url)}
    assert {path: file.size for path, file in listed.items()} == {
        path: len(data) for path, data in contents.items()
    }
    for path, data in contents.items():
        file = listed[path]
        assert b"".join(storage.read(place.url, file, 0, file.size)) == data
        assert b"".join(storage.read(place.url, file, 100, 2000)) == data[100:2000]


def test_what_changed_has_another_mark(place: Server, tmp_path: Path) -> None:
    contents = fill(place, tmp_path)
    storage = open_storage(place.url, place.options)
    before = {file.path: file.mark for file in storage.list(place.url)}
    changed = place.folder / "a.txt"
    other = tmp_path / "other"
    other.write_bytes(contents["a.txt"][::-1])
    if place.url.startswith("http"):
        shutil.copyfile(other, changed)
        os.utime(changed, (changed.stat().st_mtime + 2, changed.stat().st_mtime + 2))
    else:
        time.sleep(1.1)  # SFTP tells whole seconds
        storage.put(other, place.url, "a.txt")
    after = {file.path: file.mark for file in storage.list(place.url)}
    assert {path for path in before if before[path] != after[path]} == {"a.txt"}


def test_nothing_there_is_the_users_mistake(place: Server, tmp_path: Path) -> None:
    url = f"{place.url.rstrip('/')}/nothing/"
    with pytest.raises(UserError, match="nothing"):
        SmartSync(tmp_path / "cache").bring(url, place.options)


@pytest.mark.parametrize("kind", ["s3", "sftp"])
def test_the_contract_of_storages_holds(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    plugin: type = {"s3": S3Storage, "sftp": SftpStorage}[kind]

    class Tried(plugin):  # type: ignore[misc]
        @staticmethod
        def example(folder: Path) -> Mapping[str, Any]:
            return {"url": f"{server.url}/contract-{uuid.uuid4().hex[:6]}", **server.options}

    check("storage", Tried, tmp_path)


def test_the_contract_holds_for_the_file_system(tmp_path: Path) -> None:
    class Tried(FileStorage):
        @staticmethod
        def example(folder: Path) -> Mapping[str, Any]:
            return {"url": f"file://{folder}/store"}

    check("storage", Tried, tmp_path)


def test_wrong_credentials_are_one_line_without_the_secret(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (s3.folder / "x").write_text("x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(UserError) as caught:
        SmartSync(tmp_path).bring(s3.url, s3.options)
    assert "wrong-and-secret" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_profile_and_no_credentials_at_all(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (s3.folder / "x").write_text("x")
    settle()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UserError, match="no credentials|redentials"):
        SmartSync(tmp_path).bring(s3.url, s3.options)
    shared = tmp_path / "credentials"
    shared.write_text(f"[team]\naws_access_key_id = AKIATEST\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    version = SmartSync(tmp_path / "c").bring(s3.url, {**s3.options, "profile": "team"})
    assert version.count >= 1
    with pytest.raises(UserError, match="the config profile .* could not be found|nobody"):
        SmartSync(tmp_path / "c").bring(s3.url, {**s3.options, "profile": "nobody"})


def test_an_unknown_host_is_refused_and_a_wrong_key_too(sftp: Server, tmp_path: Path) -> None:
    (sftp.folder / "x").write_text("x")
    with pytest.raises(UserError, match=r"not in known_hosts; its key is .* SHA256:.*ssh-keyscan"):
        SmartSync(tmp_path).bring(sftp.url, {"key": sftp.options["key"]})
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    with pytest.raises(UserError, match="the host refuses the login"):
        SmartSync(tmp_path).bring(sftp.url, {**sftp.options, "key": str(other)})


def test_checksums_of_a_web_folder_are_compared_with_what_comes(
    web: Server, tmp_path: Path
) -> None:
    folder = web.folder / "summed"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"one")
    digest = hashlib.sha256(b"one").hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  a.bin\n")
    version = SmartSync(tmp_path / "c").bring(f"{web.url}/summed/")
    assert [kept.path for kept in version.kept()] == ["a.bin"]
    (folder / "SHA256SUMS").write_text(f"{digest[::-1]}  a.bin\n")
    with pytest.raises(EnvironmentFault, match=f"a.bin arrived with the hash {digest}"):
        SmartSync(tmp_path / "d").bring(f"{web.url}/summed/")


def test_an_answer_that_is_an_error_is_closed_and_not_left_to_the_garbage(web: Server) -> None:
    """Collected late, it is a ResourceWarning in whatever goes on then: in another test."""

    def refused() -> None:
        with pytest.raises(FileNotFoundError) as reported:  # holds the error, and so its connection
            list(open_storage(web.url, {}).list(f"{web.url}/nothing/"))
        assert "does not exist (404)" in str(reported.value)

    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(5):
            refused()
        gc.collect()
    assert [str(one.message) for one in warned if one.category is ResourceWarning] == []


def test_one_file_of_a_web_server_is_a_dataset_of_one_file(web: Server, tmp_path: Path) -> None:
    (web.folder / "one.parquet").write_bytes(b"PAR1")
    version = SmartSync(tmp_path).bring(f"{web.url}/one.parquet")
    assert (version.files / "one.parquet").read_bytes() == b"PAR1"


def test_a_model_without_a_revision_follows_the_hub_and_one_with_it_does_not_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    files = {"config.json": b"{}"}
    cache = Cache(tmp_path / "cache", Site(name="s"))
    moving = Model(name="m", source="hf://org/name", engine="vllm")
    pinned = moving.model_copy(update={"revision": "a" * 40})
    with hub({"org/name": files}) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        first, settled = cache.local(moving), cache.local(pinned)
        files["config.json"] = b'{"new": 1}'
        assert cache.local(moving).source != first.source
        assert (Path(cache.local(moving).source) / "config.json").read_bytes() == b'{"new": 1}'
    assert cache.local(pinned).source == settled.source, "nobody answers any more"


def test_a_model_of_the_hub_comes_with_its_hashes_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "config.json": b"{}",
        "model.safetensors": secrets.token_bytes(5000),
        ".gitattributes": b"x",
    }
    with hub({"org/name": files, "org/gated": files}, gated=("org/gated",)) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        version = SmartSync(tmp_path / "a").bring("hf://org/name@main")
        assert sorted(kept.path for kept in version.kept()) == ["config.json", "model.safetensors"]
        assert (version.files / "model.safetensors").read_bytes() == files["model.safetensors"]
        with pytest.raises(UserError, match=r"is gated: accept its terms .*HF_TOKEN"):
            SmartSync(tmp_path / "b").bring("hf://org/gated")
        with pytest.raises(UserError, match="does not exist"):
            SmartSync(tmp_path / "b").bring("hf://org/nothing")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert SmartSync(tmp_path / "b").bring("hf://org/gated").count == 2
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        assert SmartSync(tmp_path / "c").bring("hf://org/gated").count == 2


def test_a_dataset_of_the_hub_is_read_where_it_was_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    rows = b'{"q": "total?", "a": ["12"], "page": "1.png"}\n'
    files = {"data/test.jsonl": rows, "data/1.png": b"not really", "README.md": b"about"}
    definition = Dataset(
        name="d", source="hf://datasets/org/pages", iterator="table", split="data/test.jsonl"
    )
    with hub({"datasets/org/pages": files}) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        found = Cache(tmp_path / "cache", Site(name="s")).local(definition)
    assert (Path(found.source) / "data/test.jsonl").read_bytes() == rows
    assert (Path(found.source) / "data/1.png").read_bytes() == b"not really"
