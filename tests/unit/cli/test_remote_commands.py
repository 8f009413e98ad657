"""`--site`: which verbs take it, what is passed on, and what is shown when a command starts again."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli.at_site import Unseen
from hpcbench.cli.parse import parser, words_of
from tests.unit.command import Cli

COMMANDS = [
    ["submit", "plan.yaml", "--set", "a=1", "--set", "b=-1", "--registry", "r", "--json"],
    ["submit", "plan.yaml", "--pilot", "0", "--max-gpu-hours", "1.5"],
    ["logs", "@last", "name", "-n", "0", "--grep=-x", "-f"],
    ["events", "abc", "--since", "c"],
    ["cancel", "abc", "rt1", "rt2"],
    ["status"],
    ["list", "--json"],
    ["usage", "--all", "--by", "month"],
    ["gc", "abc", "--older", "0.5", "--yes"],
]


@pytest.mark.parametrize("words", COMMANDS)
def test_words_made_of_what_was_parsed_parse_to_the_same(words: list[str]) -> None:
    arguments = parser().parse_args(words)
    again = parser().parse_args([arguments.verb, *words_of(arguments)])
    assert again == arguments


@pytest.mark.parametrize(
    "verb",
    [
        "new", "score f", "compare a b", "ab p", "power e", "import f --from lmms-eval",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "words", ["--metrics a,b", "--metric a,b", "--metric a --metric b", "--metrics a --metrics b"]
)
def test_metrics_are_named_in_one_way_by_every_verb(verb: str, words: str) -> None:
    assert parser().parse_args([*verb.split(), *words.split()]).metrics == ["a", "b"]


def test_what_is_left_out_is_not_there() -> None:
    arguments = parser().parse_args(["report", "abc", "--to", "dir", "--site", "lab"])
    assert words_of(arguments, leave=("site", "to")) == ["abc"]


@pytest.mark.parametrize(
    "words", [["--site", "lab", "status"], ["status", "--site", "lab"], ["status", "--site=lab"]]
)
def test_the_site_may_stand_before_the_verb_and_after_it(words: list[str]) -> None:
    assert parser().parse_args(words).site == "lab"


@pytest.mark.parametrize(
    "verb",
    [
        "submit", "status", "watch", "events", "logs", "cancel", "pause", "resume", "report",
        "list", "usage", "gc",
    ],
)  # fmt: skip
def test_these_verbs_run_elsewhere(verb: str) -> None:
    arguments = {"submit": ["p"], "cancel": ["x"], "pause": ["x"], "resume": ["x"]}.get(verb, [])
    found: argparse.Namespace = parser().parse_args([verb, *arguments, "--site", "lab"])
    assert found.elsewhere


def test_others_say_that_they_do_not(cli: Cli) -> None:
    assert "doctor runs on this machine only" in cli.err("--site", "lab", "doctor")


def test_who_cannot_be_asked_has_to_say_it_before(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profile = tmp_path / "hpcbench" / "sites" / "lab.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("name: lab\nssh: {host: nowhere.invalid}\n")
    assert "cannot ask for your consent" in cli.err("gc", "--older", "30", "--site", "lab")


def test_a_command_line_without_a_site_is_as_it_was() -> None:
    assert parser().parse_args(["status"]).site is None


@given(
    lines=st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line), unique=True),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    size=st.integers(1, 7),
)
def test_however_often_it_starts_again_every_line_is_shown_once(
    lines: list[bytes], cuts: list[int], size: int
) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    unseen, shown = Unseen(), b""
    for number, cut in enumerate([*cuts, len(whole)]):
        if number:
            unseen.again()
        for at in range(0, cut, size):
            shown += unseen.of(whole[at : min(at + size, cut)])
    assert shown + unseen.end() == whole


def test_a_line_without_an_end_is_shown_at_the_end() -> None:
    unseen = Unseen()
    assert unseen.of(b"a\nb") == b"a\n"
    assert unseen.end() == b"b"
