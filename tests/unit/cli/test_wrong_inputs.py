"""Three hundred wrong inputs: each mistake is one line that says where it is, what it is and what to do.

The inputs and the answers to them are in tests/inputs/; a line may be longer than in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from tests.conftest import ROOT
from tests.unit.misuse import make_world
from tests.unit.registries import Files

pytestmark = pytest.mark.long

INPUTS = ROOT / "tests" / "inputs"

PLAN = """\
schema_version: 1
name: small
site: here
parallelism: 2
run_tasks:
  - name: first
    ml_task: vqa
    model: org/tiny
    dataset: pages
    prompt: ask
    metrics: [anls]
    split: easy
    limit: 10
    generation: {max_tokens: 96}
    resources: {cpus: 1, memory_gb: 2, time_limit: "00:20:00"}
reports: [html]
"""

REMEDY = re.compile(
    r"\(.+\)$|\b(must|needs|takes|did you mean|expected|is missing|such as|letters, digits|is a number"
    r"|fewer than|predictions are|not a JSON object|has others|no results of|not a valid Jinja2 template"
    r"|cannot contain)\b"
)
"""How a line says what to do: in parentheses at its end, or by what the value must be."""


def inputs(file: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Both sides of `=>`, and the beginnings of the lines that are said."""
    blocks = (INPUTS / file).read_text(encoding="utf-8").split("\n\n")[1:]
    found = []
    for block in blocks:
        head, *said = block.strip("\n").split("\n")
        left, _, right = head.partition(" => ")
        found.append((_unescaped(left), _unescaped(right), tuple(line.strip() for line in said)))
    return found


def _unescaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("unicode_escape")


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit code, and the lines on standard error."""
    try:
        code = main(words)
    except SystemExit as end:  # argparse's own
        code = int(end.code or 0)
    said = capsys.readouterr().err.replace(f"{Path.cwd()}/", "")
    return code, said.splitlines()


def check(given: object, lines: list[str], expected: tuple[str, ...]) -> None:
    assert len(lines) == len(expected), (given, lines)
    for line, beginning in zip(lines, expected, strict=True):
        assert beginning in line, (given, line)
        assert REMEDY.search(line), f"{given}: no remedy in {line}"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A registry beside which plans are written."""
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    made = Files(tmp_path)
    made.write("sites/here.yaml", "name: here\nexecutor: local\n")
    return made


def test_a_wrong_plan_is_reported_at_its_place_with_the_remedy(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    for old, new, expected in inputs("plans.txt"):
        assert old in PLAN
        files.plan(PLAN.replace(old, new, 1))
        code, lines = run(["validate", "p.yaml", "--registry", "registry"], capsys)
        assert code == 2, new
        check(new, lines, expected)


def test_a_wrong_definition_is_reported_at_its_place_with_the_remedy(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.plan(PLAN)
    for name, text, expected in inputs("definitions.txt"):
        path = files.registry / name
        before = path.read_text() if path.exists() else None
        files.write(name, text)
        code, lines = run(["validate", "p.yaml", "--registry", "registry"], capsys)
        assert code == 2, text
        check(text, lines, expected)
        path.unlink() if before is None else path.write_text(before)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of everything that is not what a verb wants, and an experiment that is done."""
    made = make_world(tmp_path / "world")
    monkeypatch.setenv("HPCBENCH_HOME", str(made / "hpcbench"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made / "config"))
    monkeypatch.chdir(made)
    registry = Files(made)
    registry.write("sites/here.yaml", "name: here\nexecutor: local\n")
    registry.plan(PLAN)
    return made


def test_a_wrong_command_is_one_line_with_the_remedy(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, code, expected in inputs("commands.txt"):
        found, lines = run([*line.split(), *_registry(line)], capsys)
        assert found == int(code), (line, lines)
        check(line, lines, expected)


def _registry(line: str) -> Iterator[str]:
    if "p.yaml" in line and "--registry" not in line:
        yield from ("--registry", "registry")


def test_there_are_two_hundred_of_them_and_more() -> None:
    assert (
        sum(len(inputs(file)) for file in ("plans.txt", "definitions.txt", "commands.txt")) >= 250
    )


def test_a_mistake_made_twenty_times_is_one_line_that_counts(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = PLAN[PLAN.index("  - name: first") : PLAN.index("reports:")].replace("anls", "anlss")
    entries = "".join(entry.replace("first", f"task-{number}") for number in range(20))
    head = PLAN[: PLAN.index("  - name: first")]
    files.plan(head + entries)
    code, lines = run(["validate", "p.yaml", "--registry", "registry"], capsys)
    assert code == 2
    (line,) = lines
    assert line.startswith("p.yaml:11:15: unknown metric 'anlss' (did you mean 'anls'?)")
    assert line.endswith("; 19 more times, in lines 21, 31, 41, 51, 61, …")
