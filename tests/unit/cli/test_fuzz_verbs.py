"""Every verb with bad values, files, environments and streams: a word and an exit code, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hpcbench.cli.parse import parser
from tests.campaign import examples
from tests.unit.misuse import ENVIRONMENTS, Command, Outcome, Zygote, commands, leaves, make_world

pytestmark = pytest.mark.long

COMMANDS = examples(240)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """The world, and a process that runs commands in it."""
    with Zygote(make_world(tmp_path_factory.mktemp("misuse") / "world")) as made:
        yield made


@pytest.mark.parametrize("seed", range(3))
def test_no_command_ends_in_a_traceback(zygote: Zygote, seed: int) -> None:
    drawn = commands(random.Random(seed))
    for _, command in zip(range(COMMANDS // 3), drawn, strict=False):
        outcome = zygote.run(command)
        assert not outcome.faults(), (command, outcome.err)


def test_every_verb_that_there_is_can_be_drawn() -> None:
    verbs = {words[0] for words, _ in leaves(parser()) if words}
    assert {"submit", "status", "data", "models", "gate"} <= verbs
    drawn = commands(random.Random(1))
    seen = {command.words[0] for _, command in zip(range(2000), drawn, strict=False)}
    assert verbs - seen <= {"portal", "serve", "watch"}


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_a_nonsensical_environment_is_a_word(
    zygote: Zygote, environment: dict[str, str | None]
) -> None:
    for words in (["list"], ["status"], ["submit", "plan.yaml"]):
        outcome = zygote.run(Command(words, environment))
        assert not outcome.faults(), (words, outcome.err)


@pytest.mark.parametrize("output", ["closed", "full", "broken"])
@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["status", "--json"], ["metrics", "list"], ["compare"]], ids=str
)
def test_an_output_without_a_reader_is_no_reason_to_complain(
    zygote: Zygote, words: list[str], output: str
) -> None:
    outcome = zygote.run(Command(words, output=output))
    assert not outcome.faults(), outcome.err


def one(zygote: Zygote, *words: str, **more: str) -> Outcome:
    outcome = zygote.run(Command(list(words), **more))  # type: ignore[arg-type]
    assert not outcome.faults(), outcome.err
    return outcome


def test_a_full_disk_behind_standard_output_is_exit_code_3(zygote: Zygote) -> None:
    outcome = one(zygote, "metrics", "list", output="full")
    assert outcome.code == 3
    assert "No space left on device (free some space" in outcome.err


def test_a_file_that_may_not_be_read_names_itself_and_the_right_it_lacks(zygote: Zygote) -> None:
    outcome = one(zygote, "validate", "secret.yaml")
    assert (outcome.code, "secret.yaml: cannot be read: Permission denied" in outcome.err) == (
        2,
        True,
    )


def test_a_home_that_cannot_be_written_is_the_environment_s_fault(zygote: Zygote) -> None:
    outcome = zygote.run(Command(["list"], {"HPCBENCH_HOME": "WORLD/locked"}))
    assert outcome.code in (0, 3)
    assert not outcome.faults(), outcome.err


def test_a_folder_that_is_gone_is_said(zygote: Zygote) -> None:
    outcome = one(zygote, "list", folder="gone")
    assert outcome.code in (0, 3)


@pytest.mark.parametrize("name", ["pipe", "socket", "/dev/zero", "endless", "folder", "."])
def test_what_is_no_file_is_refused_and_not_waited_for(zygote: Zygote, name: str) -> None:
    for words in (["submit"], ["metrics", "score", "anls"]):
        outcome = one(zygote, *words, name)
        assert outcome.code == 2
        assert "not a file (name a regular file)" in outcome.err
