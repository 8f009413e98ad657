"""The user's marks: they last, they are the user's alone, and no kill leaves them unreadable."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.portal.sample_flags import Flags


def flags(folder: Path) -> Flags:
    return Flags(folder / "portal" / "flags.jsonl")


def test_marks_last(tmp_path: Path) -> None:
    one = flags(tmp_path)
    one.mark("e", "rt", "s1", "odd")
    one.mark("e", "rt", "s2")
    one.mark("e", "other", "s1")
    one.mark("e", "rt", "s1", "odder")
    one.unmark("e", "rt", "s2")
    for reader in (one, flags(tmp_path)):
        assert reader.of("e", "rt") == {"s1": "odder"}
        assert reader.of("e", "other") == {"s1": ""}
        assert reader.of("nothing", "rt") == {}


def test_what_another_portal_marks_is_seen(tmp_path: Path) -> None:
    one, other = flags(tmp_path), flags(tmp_path)
    one.mark("e", "rt", "s1")
    assert other.of("e", "rt") == {"s1": ""}
    other.mark("e", "rt", "s2")
    assert one.of("e", "rt") == {"s1": "", "s2": ""}
    one.path.unlink()
    assert one.of("e", "rt") == {}


def test_a_torn_line_costs_nothing_but_itself(tmp_path: Path) -> None:
    one = flags(tmp_path)
    one.mark("e", "rt", "s1")
    with one.path.open("ab") as file:
        file.write(b'{"experiment":"e","run_task":"rt","sam')
    assert flags(tmp_path).of("e", "rt") == {"s1": ""}
    one.mark("e", "rt", "s2")
    assert flags(tmp_path).of("e", "rt") == {"s1": "", "s2": ""}
    assert all(json.loads(line) for line in one.path.read_bytes().splitlines())


def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    one = flags(tmp_path)
    one.mark("e", "rt", "s1")
    with one.path.open("ab") as file:
        file.write(b'[]\n{}\nnull\n\xff\n{"experiment":1,"run_task":[],"sample":{}}\n')
    one.mark("e", "rt", "s2")
    assert flags(tmp_path).of("e", "rt") == {"s1": "", "s2": ""}


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    one = flags(tmp_path)
    assert one.of("e", "rt") == {}
    assert not one.path.parent.exists(), "looking makes nothing"
    one.mark("e", "rt", "s1")
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_get_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "portal").mkdir()
    (tmp_path / "portal").chmod(0o777)
    with pytest.raises(EnvironmentFault):
        flags(tmp_path).mark("e", "rt", "s1")


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    one = flags(tmp_path)
    one.path.parent.mkdir(mode=0o700)
    precious = tmp_path / "precious"
    precious.write_text("{}")
    one.path.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic"):
        one.mark("e", "rt", "s1")
    assert precious.read_text() == "{}"
    assert one.of("e", "rt") == {}


def test_many_who_mark_at_once_lose_nothing(tmp_path: Path) -> None:
    ours = [flags(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(
            target=lambda n=n: [ours[n].mark("e", "rt", f"s{n}-{i}") for i in range(20)]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ours[0].of("e", "rt")) == 80
