"""When a server wants to be asked again: whatever it writes, and whatever its clock shows."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import retry_after

NOW = 1_800_000_000.0
DATE = formatdate(NOW, usegmt=True)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7), (" 7 ", 7), ("0", 0), ("7.66", 7.66), ("9" * 400, retry_after.LONGEST),
        (formatdate(NOW + 90, usegmt=True), 90), (formatdate(NOW - 90, usegmt=True), 0),
        ("Friday, 15-Jan-27 08:01:30 GMT", 90), ("Fri Jan 15 08:01:30 2027", 90),
        ("Fri, 15 Jan 2027 08:01:30 -0000", 90), ("Fri, 15 Jan 2027 09:01:30 +0100", 90),
        (f"{NOW + 90:.0f}", 90), (f"{NOW + 90:.0f}000", 90), ("1m30s", 90),
        ("", None), ("soon", None), ("-3", None), ("²", None), ("٣", None), ("1e9", None), ("nan", None),
        ("Fri, 15 Jan 99999 08:01:30 GMT", None), ("Fri, 99 Jan 2027 08:01:30 GMT", None),
        ("Fri, 15 Jan 2027 08:01:30 +99999999999999999999", None),
    ],
)  # fmt: skip
def test_a_wait_is_a_number_or_a_date_by_the_servers_own_clock(
    said: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after.seconds({"retry-after": said, "date": DATE}) == seconds
    finally:
        monkeypatch.undo()
        time.tzset()


def test_without_a_date_of_the_answer_our_clock_counts() -> None:
    said = {"retry-after": formatdate(time.time() + 30, usegmt=True)}
    for date in ({}, {"date": "yesterday"}):
        assert retry_after.seconds({**said, **date}) == pytest.approx(30, abs=2)
    assert retry_after.seconds({}) is None


@given(st.text(max_size=40), st.text(max_size=40) | st.just(DATE))
def test_any_text_is_seconds_or_nothing(said: str, date: str) -> None:
    found = retry_after.seconds({"retry-after": said, "date": date})
    assert found is None or 0 <= found <= retry_after.LONGEST
