"""Values made of files are kept as long as the files stay, within a bound, and made once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hpcbench.portal.lru import LruCache, stamp_of


def test_a_value_is_made_once_and_again_when_its_stamp_changes() -> None:
    made: list[int] = []
    kept: LruCache[int] = LruCache(10)

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert [kept.of("a", stamp, make) for stamp in (1, 1, 2, 2)] == [0, 0, 1, 1]


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: LruCache[str] = LruCache(2)
    for key in ("a", "b", "a", "c"):
        kept.of(key, 0, lambda key=key: key)  # type: ignore[misc]
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key

    for key in ("a", "c", "b"):
        kept.of(key, 0, lambda key=key: make(key))  # type: ignore[misc]
    assert made == ["b"]


def test_costs_bound_what_is_kept() -> None:
    kept: LruCache[bytes] = LruCache(100, len)
    for key in range(10):
        kept.of(key, 0, lambda: b"x" * 40)
    assert len(kept._values) == 2


def test_a_value_larger_than_the_bound_is_kept_until_another_comes() -> None:
    """A large table is read once, not at every request for a part of it."""
    kept: LruCache[bytes] = LruCache(100, len)
    large = kept.of("large", 0, lambda: b"x" * 500)
    assert kept.held("large", 0) == (large,)
    kept.of("small", 0, lambda: b"y")
    assert (kept.held("large", 0), kept.held("small", 0)) == (None, (b"y",))


def test_a_value_that_grew_is_weighed_again() -> None:
    kept: LruCache[bytearray] = LruCache(100, len)
    kept.of("old", 0, lambda: bytearray(10))
    growing = kept.of("growing", 0, lambda: bytearray(10))
    growing.extend(bytes(85))
    assert kept.held("old", 0) is not None
    kept.of("growing", 0, bytearray)  # used last
    kept.weigh("growing")
    assert (kept.held("old", 0), kept.held("growing", 0)) == (None, (growing,))


def test_of_several_threads_one_makes_it() -> None:
    made: list[int] = []
    kept: LruCache[int] = LruCache(10)
    started, go_on = threading.Event(), threading.Event()

    def make() -> int:
        made.append(1)
        started.set()
        go_on.wait(10)
        return 7

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(kept.of("a", 0, make))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    started.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert (found, made) == ([7] * 4, [1])


def test_a_failure_is_not_kept() -> None:
    kept: LruCache[int] = LruCache(10)
    with pytest.raises(ZeroDivisionError):
        kept.of("a", 0, lambda: 1 // 0)
    assert kept.of("a", 0, lambda: 3) == 3


def test_a_file_that_changes_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a"
    stamps = [stamp_of(path)]
    for text in ("1", "22"):
        path.write_text(text)
        stamps.append(stamp_of(path))
    assert stamps[0] is None
    assert len(set(stamps)) == 3
