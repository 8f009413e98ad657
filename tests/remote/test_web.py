"""Web servers and hubs that lead elsewhere, forget their marks, or change while they are read."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpcbench.data import transfer, web
from hpcbench.data.copies import Cache
from hpcbench.data.storage import open_storage
from hpcbench.data.sync import SmartSync
from hpcbench.errors import UserError
from hpcbench.plugins import StoredFile
from hpcbench.schema.model import Model
from hpcbench.schema.site import Site
from tests.remote.hub import hub
from tests.remote.serving import Reply, Serving, serving

DATED = {"Last-Modified": "Tue, 01 Jul 2025 00:00:00 GMT"}
HEADERS = {"Authorization": "Bearer SECRET-1", "Private-Token": "SECRET-2"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TRIES", 2)


# --- redirects -----------------------------------------------------------------------------------------


@pytest.fixture
def two() -> Iterator[tuple[Serving, Serving]]:
    """A server that leads to another one for all that is asked, and that one."""

    def there(path: str, headers: Mapping[str, str]) -> Reply:
        if path.endswith("/"):
            return 200, {}, b"<a href='a.bin'>a.bin</a>"
        if "/api/" in path:
            return 200, {}, b"[]"
        return (404, {}, b"") if "SHA256SUMS" in path else (200, DATED, b"0123456789")

    with ExitStack() as stack:
        other = stack.enter_context(serving(there))
        yield (
            stack.enter_context(
                serving(lambda path, headers: (302, {"Location": f"{other.url}{path}"}, b""))
            ),
            other,
        )


def reported(server: Serving) -> str:
    return "\n".join(str(headers) for _, _, headers in server.asked)


@pytest.mark.parametrize("place", ["one.bin", "folder/"])
def test_what_opens_a_server_is_not_sent_to_another_it_leads_to(
    two: tuple[Serving, Serving], tmp_path: Path, place: str
) -> None:
    server, other = two
    version = SmartSync(tmp_path / "c").bring(f"{server.url}/{place}", {"headers": HEADERS})
    (kept,) = version.kept()
    assert (version.files / kept.path).read_bytes() == b"0123456789"
    storage = open_storage(server.url, {"headers": HEADERS})
    url = f"{server.url}/{place}"
    (file,) = storage.list(url)
    assert b"".join(storage.read(url, file, 2, 5)) == b"234"
    assert "SECRET-1" in reported(server)
    assert "SECRET-2" in reported(server)
    assert "SECRET" not in reported(other)


@pytest.mark.parametrize(("query", "heads"), [("", 1), ("?signed=1", 3)])
def test_a_server_is_asked_once_where_it_leads_unless_that_is_signed(
    query: str, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "PARTS", 4)

    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        led = path.startswith("/led")
        return (200, DATED, b"0123456789") if led else (302, {"Location": f"/led{query}"}, b"")

    with serving(answer) as server:
        url = f"{server.url}/x"
        storage = open_storage(url, {"headers": HEADERS})
        (file,) = storage.list(url)
        for start, stop in ((0, 5), (5, 10)):
            assert b"".join(storage.read(url, file, start, stop)) == b"0123456789"[start:stop]
        assert [path for _, path, _ in server.asked].count("/x") == heads


def test_what_opens_a_server_goes_along_within_it(tmp_path: Path) -> None:
    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        if headers.get("Private-Token") != "SECRET-2":
            return 401, {}, b""
        return (302, {"Location": "/new"}, b"") if path == "/old" else (200, DATED, b"here")

    with serving(answer) as server:
        version = SmartSync(tmp_path / "c").bring(f"{server.url}/old", {"headers": HEADERS})
    assert (version.files / "old").read_bytes() == b"here"


def test_the_signature_of_an_address_it_leads_to_is_in_no_message() -> None:
    def there(path: str, headers: Mapping[str, str]) -> Reply:
        asked = [method for method, _, _ in other.asked]
        return (400 if "GET" in asked else 200), DATED, b"0123456789"

    with serving(there) as other:
        signed = {"Location": f"{other.url}/data?X-Amz-Signature=SECRET-4"}
        with serving(lambda path, headers: (302, signed, b"")) as server:
            url = f"{server.url}/x"
            storage = open_storage(url, {"headers": HEADERS})
            (file,) = storage.list(url)
            for start in (0, 3):
                other.asked.clear()
                with pytest.raises(OSError, match=r"/data\?… in .* 400 Bad Request") as caught:
                    list(storage.read(url, file, start, 10))
                assert "SECRET" not in str(caught.value)


def test_the_hubs_token_is_not_sent_to_another_server(
    two: tuple[Serving, Serving], tmp_path: Path
) -> None:
    server, other = two
    options = {"endpoint": server.url, "token": "SECRET-3"}
    commit = "a" * 40
    with pytest.raises(UserError, match="the source has no files"):
        SmartSync(tmp_path / "c").bring(f"hf://org/name@{commit}", options)
    assert "SECRET-3" in reported(server)
    assert other.asked
    assert "SECRET" not in reported(other)


def test_a_mirrors_list_goes_on_at_the_mirror_whatever_server_it_names(tmp_path: Path) -> None:
    """Mirrors hand on the hub's own addresses; who asks them may not reach it, and has their token."""

    def mirror(path: str, headers: Mapping[str, str]) -> Reply:
        if "/resolve/" in path:
            return 200, DATED, b"x"
        more = f"{other.url}/api/models/org/name/tree/{'a' * 40}?recursive=true&cursor=a%3D"
        link = {} if path.endswith("&cursor=a%3D") else {"Link": f'<{more}>; rel="next"'}
        entry = {"type": "file", "path": "a" if link else "b", "size": 1}
        return 200, link, json.dumps([entry]).encode()

    with serving(lambda path, headers: (200, {}, b"[]")) as other, serving(mirror) as server:
        options = {"endpoint": f"{server.url}/hf", "token": "SECRET-3"}
        version = SmartSync(tmp_path / "c").bring(f"hf://org/name@{'a' * 40}", options)
        assert [kept.path for kept in version.kept()] == ["a", "b"]
        assert other.asked == []
        assert {path.startswith("/hf/") for _, path, _ in server.asked} == {True}


def test_a_list_that_leads_to_itself_ends(tmp_path: Path) -> None:
    with (
        serving(
            lambda path, headers: (200, {"Link": '<https://huggingface.co/x>; rel="next"'}, b"[]")
        ) as server,
        pytest.raises(UserError, match="names itself as its next page"),
    ):
        SmartSync(tmp_path / "c").bring(f"hf://org/name@{'a' * 40}", {"endpoint": server.url})


def test_a_list_goes_on_at_its_own_server(tmp_path: Path) -> None:
    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        if "/resolve/" in path:
            return 200, DATED, b"x"
        name, link = ("b", {}) if "more" in path else ("a", {"Link": '</more>; rel="next"'})
        return 200, link, json.dumps([{"type": "file", "path": name, "size": 1}]).encode()

    with serving(answer) as server:
        url = f"hf://org/name@{'a' * 40}"
        version = SmartSync(tmp_path / "c").bring(url, {"endpoint": server.url})
    assert [kept.path for kept in version.kept()] == ["a", "b"]


# --- what is asked for ---------------------------------------------------------------------------------


def test_what_follows_the_question_mark_is_asked_for_and_is_no_part_of_the_name(
    tmp_path: Path,
) -> None:
    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        return 200, DATED, path.encode()

    with serving(answer) as server:
        url = f"{server.url}/records/my%20scans.zip?download=1&id=%C3%A9"
        version = SmartSync(tmp_path / "c").bring(url)
    assert [kept.path for kept in version.kept()] == ["my scans.zip"]
    asked = (version.files / "my scans.zip").read_text()
    assert asked == "/records/my%20scans.zip?download=1&id=%C3%A9"


def test_a_server_that_refuses_to_say_there_are_no_sums_is_asked_for_its_page(
    tmp_path: Path,
) -> None:
    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        if path == "/d/":
            return 200, {}, b"<a href='a.txt'>a.txt</a>"
        return (200, DATED, b"here") if path == "/d/a.txt" else (403, {}, b"<Error/>")

    with serving(answer) as server:
        version = SmartSync(tmp_path / "c").bring(f"{server.url}/d/")
        with pytest.raises(UserError, match=r"refuses access \(403\)"):
            SmartSync(tmp_path / "c").bring(f"{server.url}/nothing/")
    assert [kept.path for kept in version.kept()] == ["a.txt"]


# --- what changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [True, False])
def test_parts_of_a_file_that_was_replaced_are_refused(
    monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    monkeypatch.setattr(web, "PARTS", 1000)
    state = {"tag": '"one"', "data": b"a" * 5000}

    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        return 200, {"ETag": str(state["tag"]), **DATED}, bytes(state["data"])

    with serving(answer, ranges=ranges) as server:
        url = f"{server.url}/large.bin"
        storage = open_storage(url, {})
        (file,) = storage.list(url)
        assert b"".join(storage.read(url, file, 500, 4500)) == b"a" * 4000
        started = iter(storage.read(url, file, 500, 4500))
        if ranges:
            assert next(started) == b"a" * 1000
        state.update(tag='"two"', data=b"b" * 5000)
        with pytest.raises(OSError, match="changed while it was read: sync again"):
            list(started)


def test_a_server_that_marks_nothing_is_taken_at_its_word(tmp_path: Path) -> None:
    with serving(lambda path, headers: (200, {}, b"0123456789")) as server:
        url = f"{server.url}/x.bin"
        storage = open_storage(url, {})
        (file,) = storage.list(url)
        assert file.mark == "", "not known"
        assert b"".join(storage.read(url, file, 2, 5)) == b"234"


# --- the hub -------------------------------------------------------------------------------------------


def test_a_branch_that_moves_while_it_is_read_is_read_as_it_was_listed() -> None:
    files = {"config.json": b'{"a": 1}', "model.bin": secrets.token_bytes(5000)}
    first = dict(files)
    with hub({"org/name": files}) as endpoint:
        storage = open_storage("hf://org/name", {"endpoint": endpoint})
        listed = list(storage.list("hf://org/name"))
        files.update({"config.json": b'{"a": 2}', "model.bin": secrets.token_bytes(5000)})
        for file in listed:
            read = storage.read("hf://org/name", file, 0, file.size)
            assert b"".join(read) == first[file.path]


def test_a_small_file_of_the_hub_is_compared_with_its_git_hash() -> None:
    files = {"config.json": b'{"a": 1}'}
    with hub({"org/name": files}) as endpoint:
        url = f"hf://org/name@{'b' * 40}"
        storage = open_storage(url, {"endpoint": endpoint})
        (file,) = storage.list(url)
        assert b"".join(storage.read(url, file, 0, file.size)) == b'{"a": 1}'
        files["config.json"] = b'{"a": 2}'
        with pytest.raises(
            OSError, match=f"config.json arrived with the hash .* lists {file.mark}"
        ):
            list(storage.read(url, file, 0, file.size))


def test_no_retry_takes_what_is_not_of_its_git_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry goes on where the read before broke off: what came of it has to be right."""
    monkeypatch.setattr(transfer, "TRIES", 5)
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)
    data = b"a" * 3_000_000  # comes in many pieces
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    file = StoredFile("tokenizer.json", len(data), oid)
    served = bytearray(data)
    with serving(lambda path, headers: (200, DATED, bytes(served))) as server:
        url = f"hf://org/name@{'b' * 40}"
        storage = open_storage(url, {"endpoint": server.url})
        assert b"".join(transfer.pieces(storage, url, file, 0, file.size)) == data
        assert b"".join(storage.read(url, file, 10, 20)) == data[10:20]
        served[0] += 1
        for start in (0, 2_900_000):
            with pytest.raises(OSError, match=r"tokenizer.json arrived with the hash"):
                list(transfer.pieces(storage, url, file, start, file.size))


def model(cache: Cache, source: str) -> Path:
    return Path(cache.local(Model(name="m", source=source, engine="vllm")).source)


def test_a_commit_is_not_asked_for_again_and_a_branch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    files = {"config.json": b"{}"}
    cache = Cache(tmp_path / "cache", Site(name="s"))
    with hub({"org/name": files}) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        commit = f"hf://org/name@{'a' * 40}"
        pinned = model(cache, commit)
        assert model(cache, "hf://org/name@main").joinpath("config.json").read_bytes() == b"{}"
        files["config.json"] = b'{"new": 1}'
        moved = model(cache, "hf://org/name@main")
        assert (moved / "config.json").read_bytes() == b'{"new": 1}'
        assert model(cache, commit) == pinned
        # What is damaged is brought again, if the hub has it still.
        (moved / "config.json").unlink()
        assert model(cache, "hf://org/name@main") == moved
        assert (moved / "config.json").read_bytes() == b'{"new": 1}'
        files["config.json"] = b"{}"
        (pinned / "config.json").write_bytes(b"{")
        assert model(cache, commit) == pinned
        assert (pinned / "config.json").read_bytes() == b"{}"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert model(cache, commit) == pinned
    assert model(cache, "hf://org/name@main") == moved, "what came before serves"
    (moved / "config.json").unlink()
    with pytest.raises(UserError, match="is not on this machine"):
        model(cache, "hf://org/name@main")
