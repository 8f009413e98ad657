import zipfile
from pathlib import Path

import pytest
from hpcbench_example_zip import ZipStorage


def test_members_of_a_folder_are_listed_and_fetched(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("pages/1.txt", "one")
        archive.writestr("other/2.txt", "two")
    url = f"zip://{tmp_path}/a.zip!/pages"
    (file,) = ZipStorage({}).list(url)
    assert (file.path, file.size) == ("1.txt", 3)
    assert b"".join(ZipStorage({}).read(url, file, 0, 3)) == b"one"
    assert b"".join(ZipStorage({}).read(url, file, 1, 2)) == b"n"


def test_putting_replaces_one_member_and_keeps_the_others(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("new")
    url = f"zip://{tmp_path}/a.zip"
    for name in ("x", "y", "x"):
        ZipStorage({}).put(tmp_path / "new", url, name)
    assert [(file.path, file.size) for file in ZipStorage({}).list(url)] == [("x", 3), ("y", 3)]


def test_a_member_that_leads_out_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../evil", "x")
    with pytest.raises(OSError, match="leads out"):
        list(ZipStorage({}).list(f"zip://{tmp_path}/a.zip"))
