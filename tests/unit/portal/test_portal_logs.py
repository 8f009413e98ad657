"""Logs by the piece: every line once whatever the pieces, little read, nothing obeyed, no secret shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.layout import Experiment
from hpcbench.portal import logs
from hpcbench.portal.logs import Log, chunk, level_of, opened, readable, sources
from hpcbench.portal.models.run_tasks import LogChunk

TEXTS = st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=60)
SIZES = st.lists(st.integers(min_value=1, max_value=12), min_size=1, max_size=30)


def log_of(data: bytes, *, changed: float = 0.0, read: list[int] | None = None) -> Log:
    """A log in memory; `read` collects how many bytes were asked for."""

    def pread(count: int, at: int) -> bytes:
        if read is not None:
            read.append(count)
        return data[at : at + count]

    return Log(pread, len(data), changed, (hash(data), id(data)))


def places(found: LogChunk) -> list[int]:
    return [line.at for line in found.lines]


def begins(data: bytes) -> list[int]:
    """Where each line begins."""
    found, at = [], 0
    for part in data.split(b"\n"):
        found.append(at)
        at += len(part) + 1
    return found[:-1] if data.endswith(b"\n") or not data else found


# --- pieces -------------------------------------------------------------------------------------------


@given(TEXTS, SIZES)
def test_pieces_forwards_have_every_line_once(texts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(text + b"\n" for text in texts)
    log, at, found = log_of(data), 0, list[int]()
    for size in sizes * 60:
        part = chunk(log, after=at, lines=size)
        assert part.begin == at
        found += places(part)
        at = part.end
    assert (found, at) == (begins(data), len(data))


@given(TEXTS, SIZES)
def test_pieces_backwards_from_the_end_have_every_line_once(
    texts: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(text + b"\n" for text in texts)
    log = log_of(data)
    part = chunk(log, lines=sizes[0])
    found = places(part)
    for size in sizes * 60:
        if not part.begin:
            break
        part = chunk(log, before=part.begin, lines=size)
        found = places(part) + found
    assert found == begins(data)


@given(TEXTS, st.integers(min_value=1, max_value=5))
def test_with_lines_longer_than_what_is_read_at_once_all_bytes_come_in_order(
    texts: list[bytes], size: int
) -> None:
    data = b"".join(text + b"\n" for text in texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "READ", 16)
        patch.setattr(logs, "BLOCK", 7)
        log, at = log_of(data), 0
        for _ in range(len(data) + 1):
            part = chunk(log, after=at, lines=size)
            assert part.end > at or at == len(data)
            at = part.end
        assert at == len(data)
        upto = len(data)
        for _ in range(len(data) + 1):
            part = chunk(log, before=upto, lines=size)
            assert part.begin < upto or upto == 0
            upto = part.begin
        assert upto == 0


@given(TEXTS, st.text(alphabet="abAB0", min_size=1, max_size=2), SIZES)
def test_a_search_finds_the_same_lines_forwards_and_backwards_in_any_pieces(
    texts: list[bytes], text: str, sizes: list[int]
) -> None:
    data = b"".join(one + b"\n" for one in texts)
    log, wanted = log_of(data), text.lower().encode()
    expected = [
        at
        for at, one in zip(begins(data), texts, strict=True)
        if wanted in one.decode(errors="replace").lower().encode()
    ]
    forwards, at = list[int](), 0
    backwards, upto = list[int](), len(data)
    for size in sizes * 60:
        part = chunk(log, after=at, lines=size, grep=text)
        forwards, at = forwards + places(part), part.end
        part = chunk(log, before=upto, lines=size, grep=text)
        backwards, upto = places(part) + backwards, part.begin
    assert forwards == backwards == expected


def test_a_line_that_has_no_end_yet_is_waited_for_and_reported_once_nothing_came_for_long() -> None:
    log = log_of(b"one\ntwo", changed=1000.0)
    assert [line.text for line in chunk(log, now=1001.0).lines] == ["one"]
    part = chunk(log, after=4, now=1001.0)
    assert (part.lines, part.end, part.size) == ((), 4, 7)
    assert [line.text for line in chunk(log, now=1060.0).lines] == ["one", "two"]


def test_a_log_that_was_replaced_by_a_shorter_one_shows_its_end() -> None:
    part = chunk(log_of(b"new\n"), after=5000)
    assert [(line.number, line.text) for line in part.lines] == [(1, "new")]


def test_lines_have_their_numbers_where_they_can_be_counted() -> None:
    data = b"".join(b"%d\n" % number for number in range(100))
    part = chunk(log_of(data), lines=3)
    assert [(line.number, line.text) for line in part.lines] == [
        (98, "97"),
        (99, "98"),
        (100, "99"),
    ]
    assert part.first == 98
    assert chunk(log_of(data), lines=3, grep="7").first is None


@pytest.mark.long
def test_of_a_huge_log_little_is_read(tmp_path: Path) -> None:
    read: list[int] = []
    size = 1 << 30
    path = tmp_path / "huge.log"
    with path.open("wb") as file:
        file.truncate(size)  # sparse: one line of a gigabyte of zeros
        file.seek(size)
        file.write(b"\n" + b"".join(b"line %d\n" % number for number in range(10_000)))
    descriptor = os.open(path, os.O_RDONLY)

    def pread(count: int, at: int) -> bytes:
        read.append(count)
        return os.pread(descriptor, count, at)

    log = Log(pread, os.fstat(descriptor).st_size, 0.0, (1, 1))
    try:
        assert [line.text for line in chunk(log, lines=2).lines] == ["line 9998", "line 9999"]
        chunk(log, before=size // 2)
        chunk(log, after=size // 2)
        assert sum(read) <= 8 * logs.READ
        chunk(log, grep="nowhere")
        assert sum(read) <= 9 * logs.READ + logs.SEARCH_BYTES
    finally:
        os.close(descriptor)


def test_a_search_stops_at_its_bound_and_says_how_far_it_came() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "SEARCH_BYTES", 1000)
        patch.setattr(logs, "SEARCH_SECONDS", 60.0)
        patch.setattr(logs, "READ", 256)
        data = b"needle\n" + b"hay\n" * 1000
        part = chunk(log_of(data), grep="needle")
        assert part.lines == ()
        assert 2000 < part.begin < len(data) - 900
        while part.begin and not part.lines:
            part = chunk(log_of(data), grep="needle", before=part.begin)
        assert [line.at for line in part.lines] == [0]


# --- what is shown ------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=200).map(lambda data: data.replace(b"\n", b""))))
def test_no_text_in_a_log_breaks_a_line(lines: list[bytes]) -> None:
    found = readable(lines)
    assert len(found) == len(lines)
    for text in found:
        assert not set(text) & set("\x1b\x07\x08\x9b\r\n\u202e\u2066\u2028\x00")
        text.encode()  # no half of a pair


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"\x1b[31mred\x1b[0m text", "red text"),
        (b"\x1b]8;;http://evil/\x07click\x1b]8;;\x07 here", "click here"),
        (b"\x1b]0;title\x1b\\after", "after"),
        ("\u202egnp.exe".encode(), "⟨U+202E⟩gnp.exe"),
        (b"10%\r50%\r100%\n", "100%"),
        (b"\x9b31mbytes", "\ufffd31mbytes"),
        (b"<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
    ],
)
def test_colours_links_and_bars_are_gone_and_markup_is_text(line: bytes, shown: str) -> None:
    assert readable([line]) == [shown]


@pytest.mark.parametrize(
    "line",
    [
        b"token=hf_abcdefghijklmnopqrstuvwx failed",
        b"Authorization: Bearer sk-abcdefghijklmnop1234567890",
        b"https://user:verysecretpassword1@host/x",
        b"AWS_SECRET_ACCESS_KEY=abcdefgh12345678",
    ],
)
def test_what_looks_like_a_secret_is_not_shown(line: bytes) -> None:
    (text,) = readable([line])
    assert "***" in text
    assert not any(part in text for part in ("hf_abc", "sk-abc", "verysecret", "abcdefgh12345678"))


def test_a_long_line_comes_in_pieces_that_are_the_whole_of_it() -> None:
    long = "".join(f"{number:06}é" for number in range(5000)).encode()
    data = b"first\n" + long + b"\nlast\n"
    part = chunk(log_of(data))
    assert part.lines[0].text == "first"
    assert part.lines[-1].text == "last"
    pieces = part.lines[1:-1]
    assert "".join(one.text for one in pieces).encode() == long
    assert all(data[one.at :].startswith(one.text.encode()) for one in pieces)
    assert [one.continued for one in pieces] == [False] + [True] * (len(pieces) - 1)
    assert {one.number for one in pieces} == {2}
    assert part.lines[-1].number == 3


@given(st.lists(st.integers(0, 900), max_size=5), st.integers(1, 50), st.binary(max_size=400))
def test_whatever_is_long_all_that_comes_before_is_reached(
    lengths: list[int], number: int, end: bytes
) -> None:
    """The last MiB of the log is one line, or any other; reading back ends at its beginning."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "READ", 256)
        patch.setattr(logs, "BLOCK", 64)
        patch.setattr(logs, "WIDTH", 40)
        text = b"".join(b"x" * length + b"\n" for length in lengths) + b"begin\n" * number
        data = text + end.replace(b"\n", b" ").replace(b"\r", b" ")
        part = chunk(log_of(data))
        lines = list(part.lines)
        while part.begin:
            before = part.begin
            part = chunk(log_of(data), before=part.begin)
            assert part.begin < before
            lines = [*part.lines, *lines]
        assert lines[0].at == 0
        assert [one.at for one in lines] == sorted({one.at for one in lines})
        assert sum(one.text == "begin" for one in lines) >= number
        assert sum(one.text.count("x") for one in lines) >= sum(lengths)


@given(st.integers(0, 300))
def test_a_secret_is_hidden_where_a_piece_ends(shift: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "READ", 256)
        patch.setattr(logs, "WIDTH", 40)
        data = b"y" * shift + b" password=QQQQQQQQQQQQ " + b"y" * 500
        log, part = log_of(data), chunk(log_of(data))
        assert not any("Q" in one.text for one in part.lines)
        while part.begin:
            part = chunk(log, before=part.begin)
            assert not any("Q" in one.text for one in part.lines)
        assert not any("Q" in one.text for one in chunk(log, after=0).lines)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("RuntimeError: CUDA out of memory", "error"),
        ("Traceback (most recent call last):", "error"),
        ("slurmstepd: error: Detected 1 oom-kill event", "error"),
        ("WARNING 11-20 12:00 something", "warning"),
        ("Loading weights: 100%", ""),
        ("error_rate=0.0 terror", ""),
    ],
)
def test_a_line_looks_like_what_it_is(text: str, level: str) -> None:
    assert level_of(text) == level


def test_places_of_errors_are_given_so_that_a_reader_can_jump_there() -> None:
    data = b"".join(
        b"ValueError: %d\n" % number if number % 10 == 0 else b"fine\n" for number in range(200)
    )
    part = chunk(log_of(data), lines=1)
    assert len(part.errors) == 20
    assert all(data[at:].startswith(b"ValueError") for at in part.errors)


# --- which logs ---------------------------------------------------------------------------------------


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    here = Experiment(tmp_path / "experiments" / "e")
    for name in ("workers/g0.4711_3-0.log", "jobs/4711_3_0_log.out", "jobs/4712_0_log.out"):
        path = here.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    return here


def test_logs_are_listed_with_who_wrote_them(experiment: Experiment) -> None:
    assert [(one.id, one.kind) for one in sources(experiment)] == [
        ("workers.g0.4711_3-0.log", "engine"),
        ("jobs.4712_0_log.out", "job"),
        ("jobs.4711_3_0_log.out", "worker"),
    ]
    assert {one.id for one in sources(experiment, ["g0.4711_3-0"])} == {
        "workers.g0.4711_3-0.log", "jobs.4711_3_0_log.out",
    }  # fmt: skip


def test_every_log_of_the_list_can_be_read(experiment: Experiment) -> None:
    for one in sources(experiment):
        with opened(experiment, one.id) as log:
            folder, _, name = one.id.partition(".")
            assert [line.text for line in chunk(log).lines] == [f"{folder}/{name}"]


@pytest.mark.parametrize(
    "identity",
    [
        "", "workers", "workers.", "workers..log", "workers.../manifest.json", "../manifest.json",
        "workers./etc/passwd", "jobs.4711_submission.sh", "shards.x.log", "workers.a\x00.log",
        "workers.missing.log", "workers.g0.4711_3-0.events.jsonl",
    ],
)  # fmt: skip
def test_an_id_that_is_no_log_opens_nothing(experiment: Experiment, identity: str) -> None:
    (experiment.path / "jobs" / "4711_submission.sh").write_text("#!/bin/sh\n")
    with pytest.raises(FileNotFoundError), opened(experiment, identity):
        pass


def test_a_link_is_not_followed(experiment: Experiment, tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("secret\n")
    (experiment.path / "workers" / "link.log").symlink_to(secret)
    with pytest.raises(PermissionError), opened(experiment, "workers.link.log"):
        pass
    assert "workers.link.log" not in {one.id for one in sources(experiment)}


def test_names_that_are_none_are_not_listed(experiment: Experiment) -> None:
    for name in ("-rf.log", "a b.log", "\x1b[31m.log", "x.ballast", ".hidden.log"):
        (experiment.path / "workers" / name).touch()
    os.mkfifo(experiment.path / "workers" / "pipe.log")
    found: list[Any] = [one.id for one in sources(experiment)]
    assert len(found) == 3
