"""Buckets as other tools leave them: folder markers, keys that are no paths, single objects.

rclone's server keeps objects as files and cannot have the first two; there a small server answers as S3 does.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from hpcbench.data import s3 as s3_storage
from hpcbench.data.storage import open_storage
from hpcbench.data.sync import SmartSync
from hpcbench.errors import UserError
from tests.remote.conftest import Server, settle
from tests.remote.serving import Reply, bucket_list, serving

LISTS: list[str] = []
"""Functions that asked for the list of the last bucket that was brought."""


def bring(tmp_path: Path, keys: Sequence[str], none: int = 404) -> list[tuple[str, bytes]]:
    """Bring `s3://b/p` with these keys; those that end in `/` or `.empty` are empty."""
    contents = {key: b"" if key.endswith(("/", ".empty")) else b"abc" for key in keys}

    def answer(path: str, headers: Mapping[str, str]) -> Reply:
        if "list-type=2" in path:
            below = [(key, len(data)) for key, data in contents.items() if key.startswith("p/")]
            return 200, {}, bucket_list(below)
        data = contents.get(unquote(urlsplit(path).path).removeprefix("/b/"))
        about = {"ETag": '"aa"', "Last-Modified": "Tue, 01 Jul 2025 00:00:00 GMT"}
        return (none, {}, b"") if data is None else (200, about, data)

    LISTS.clear()
    with serving(answer) as server:
        version = SmartSync(tmp_path / "cache").bring(
            "s3://b/p", {"endpoint": server.url, "anonymous": True}
        )
        LISTS.extend(path for _, path, _ in server.asked if "list-type=2" in path)
    return [(kept.path, (version.files / kept.path).read_bytes()) for kept in version.kept()]


@pytest.mark.parametrize(
    ("keys", "files"),
    [
        (["p/", "p/a"], ["a"]),
        (["p/dir/", "p/dir/a"], ["dir/a"]),
        (["p/a", "p/nothing-in-it/"], ["a"]),
        (["p/a", "p/b.empty", "p/dir/", "p/dir/c.empty"], ["a", "b.empty", "dir/c.empty"]),
    ],
    ids=["of-the-prefix", "of-a-folder", "of-an-empty-folder", "beside-empty-files"],
)
def test_a_marker_of_a_folder_is_no_file(
    tmp_path: Path, keys: Sequence[str], files: Sequence[str]
) -> None:
    expected = [(path, b"" if path.endswith(".empty") else b"abc") for path in files]
    assert bring(tmp_path, keys) == expected


def test_a_bucket_is_listed_again_only_if_much_of_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that reports a `/` at the end of keys takes ten times as long."""
    keys = ["p", "p/", "p/a", "p/a/", "p/b.empty", "p/dir/", "p/dir/c.empty"]
    few = bring(tmp_path / "few", keys)
    assert [path for path, _ in few] == ["a", "b.empty", "dir/c.empty"]
    assert len(LISTS) == 1
    monkeypatch.setattr(s3_storage, "FEW", 2)
    assert bring(tmp_path / "many", keys) == few
    assert len(LISTS) == 2


def test_a_refusal_in_place_of_not_found_lists_again(tmp_path: Path) -> None:
    keys = ["p/a", "p/b.empty", "p/dir/"]
    assert [path for path, _ in bring(tmp_path, keys, none=403)] == ["a", "b.empty"]


def test_a_bucket_of_nothing_but_markers_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="s3://b/p: the source has no files"):
        bring(tmp_path, ["p/", "p/dir/"])


def test_a_key_that_is_no_path_is_named_and_no_older_version_is_used_instead(
    tmp_path: Path,
) -> None:
    bring(tmp_path, ["p/a"])
    with pytest.raises(
        UserError, match="lists a key that cannot be a file: .*p/a//b.txt"
    ) as reported:
        bring(tmp_path, ["p/a//b.txt", "p/ok.txt"])
    assert len(str(reported.value).splitlines()) == 1


def test_one_object_is_a_source_of_one_file(s3: Server, tmp_path: Path) -> None:
    name = f"{uuid.uuid4().hex[:8]} #1?.parquet"
    (s3.folder / name).write_bytes(b"PAR1 and so on")
    settle()
    url = f"{s3.url}/{name}"
    version = SmartSync(tmp_path / "c").bring(url, s3.options)
    assert [kept.path for kept in version.kept()] == [name]
    assert (version.files / name).read_bytes() == b"PAR1 and so on"
    storage = open_storage(url, s3.options)
    (file,) = storage.list(url)
    assert b"".join(storage.read(url, file, 2, 6)) == b"R1 a"
    for nothing in (f"{url}/", f"{s3.url}/{name[:-1]}"):
        with pytest.raises(UserError, match="the source has no files"):
            SmartSync(tmp_path / "c").bring(nothing, s3.options)
