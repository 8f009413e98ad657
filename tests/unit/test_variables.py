"""Environment variables: set for a moment, and past a node's proxy."""

from __future__ import annotations

import os

import pytest

from hpcbench.variables import past_proxies, variable

NAME = "HPCBENCH_TEST_VARIABLE"


@pytest.mark.parametrize("before", [None, "", "known"])
def test_a_variable_is_as_before_after_the_block(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if before is not None:
        monkeypatch.setenv(NAME, before)
    with pytest.raises(ImportError, match="inside"), variable(NAME, "inside"):
        raise ImportError(os.environ[NAME])
    assert os.environ.get(NAME) == before


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (None, "127.0.0.1,::1"),
        ("", "127.0.0.1,::1"),
        (".example.org", ".example.org,127.0.0.1,::1"),
        ("*", "*"),  # urllib and curl read it only alone
    ],
)
def test_hosts_are_added_to_those_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, known: str | None, found: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    if known is not None:
        monkeypatch.setenv("no_proxy", known)
    assert past_proxies("127.0.0.1,::1") == {"no_proxy": found, "NO_PROXY": "127.0.0.1,::1"}
