"""Mounted file systems: names with spaces, of other alphabets, and of bytes that are no characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.files.mounts import kind_of, mounted

TABLE = (
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 21 0:50 /part /scratch/my\\040data rw,nosuid master:2 propagate_from:3 - lustre srv:/fs rw,flock\n"
    "41 21 0:51 / /проекты ro - nfs4 srv:/p rw,vers=4.2\n"
    "42 21 0:52 / /odd\udcff rw - tmpfs tmpfs rw\n"
    "torn line\n"
)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/scratch/my data/a", "lustre"),
        ("/проекты/я", "nfs4"),
        ("/scratchy", "ext4"),
    ],
)
def test_a_folder_is_on_the_innermost_mount_around_it(place: str, kind: str) -> None:
    assert kind_of(Path(place), TABLE) == kind


def test_a_mount_has_its_root_its_own_options_and_those_of_its_file_system() -> None:
    _, lustre, nfs, odd = mounted(TABLE)
    assert (lustre.root, lustre.place) == ("/part", "/scratch/my data")
    assert (lustre.options, lustre.of_system) == (("rw", "nosuid"), ("rw", "flock"))
    assert (nfs.place, nfs.options) == ("/проекты", ("ro",))
    assert odd.place.encode("utf-8", "surrogateescape") == b"/odd\xff"
