"""Places of parts in a JSON file: the parts that a reader of the whole file would find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.files import json_places
from hpcbench.files.json_places import SMALL, Changed, locate, read

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.text(
    '\\"[]{}', max_size=6
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    parts=st.dictionaries(TEXT, VALUES, max_size=4),
    other=st.dictionaries(TEXT, VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    small=st.sampled_from([SMALL, 0]),
)
def test_each_part_is_what_a_reader_of_the_whole_file_finds(
    tmp_path_factory: pytest.TempPathFactory,
    parts: dict[str, Any],
    other: dict[str, Any],
    indent: int | None,
    ascii_only: bool,
    small: int,
) -> None:
    path = tmp_path_factory.mktemp("json") / "file.json"
    whole = {**other, "parts": parts}
    path.write_bytes(b" " + json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode())
    with patch.object(json_places, "SMALL", small):
        places = locate(path, "parts")
    assert set(places.numbers) == set(parts)
    assert set(places.whole) == set(whole)
    for name, value in parts.items():
        place = places.part(name)
        assert place is not None
        assert read(path, places, [place]) == [value]
    assert places.part("none of these names") is None


def test_elements_have_the_names_that_they_are_given(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    tasks = [{"name": "straße", "n": 1}, {"name": "b\u2028", "n": 2}]
    path.write_text(json.dumps({"run_tasks": tasks, "site": {}}, ensure_ascii=False))
    places = locate(path, "run_tasks", lambda one: str(one["name"]))
    place = places.part("b\u2028")
    assert place is not None
    assert read(path, places, [place, places.whole["site"]]) == [tasks[1], {}]
    path.write_text('{"run_tasks": [], "a": 1}')
    assert len(locate(path, "run_tasks", str)) == 0


def test_a_file_that_has_changed_is_not_read_by_old_places(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"parts": {"a": 1}}')
    places = locate(path, "parts")
    (tmp_path / "new").write_text('{"parts": {"b": 2}}')
    (tmp_path / "new").replace(path)
    with pytest.raises(Changed):
        read(path, places, [(0, 1)])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"parts": {"a": 1}', '{"parts": {"a" 1}}', '{"parts": {"a": 1,}}', "{1: 2}"],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        locate(path, "parts")


def test_a_part_is_judged_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"parts": {"a": {"n": 1}, "b": {"n": none}}}')
    places = locate(path, "parts")
    sound, damaged = places.part("a"), places.part("b")
    assert sound is not None
    assert damaged is not None
    assert read(path, places, [sound]) == [{"n": 1}]
    with pytest.raises(ValueError, match=r".+"):
        read(path, places, [damaged])


def test_a_part_that_is_nested_too_deep_for_a_parser_does_not_hide_the_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.json"
    path.write_text(f'{{"parts": {{"a": {"[" * 20_000}{"]" * 20_000}, "b": 1}}}}')
    places = locate(path, "parts")
    place = places.part("b")
    assert place is not None
    assert read(path, places, [place]) == [1]


def test_places_of_a_small_file_are_found_without_numpy(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"parts": {"a": {"n": 1}}}')
    code = (
        "import sys\nfrom pathlib import Path\nfrom hpcbench.files.json_places import locate\n"
        "print(len(locate(Path(sys.argv[1]), 'parts')), 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 False\n"
