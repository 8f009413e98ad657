"""Ten thousand damaged plans: each is a plan, or mistakes with file, line and column; never a traceback."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.errors import UserError
from hpcbench.registry.resolve import load_plan
from tests.campaign import cases
from tests.conftest import ROOT
from tests.unit.registries import Files

pytestmark = pytest.mark.long

BATCHES, PLANS = 10, cases(1000)

SOURCES = [
    (ROOT / "examples/demo/plan.yaml").read_text(),
    (ROOT / "examples/demo/doctor.yaml").read_text(),
    """\
name: grid
site: here
matrix:
  - ml_task: vqa
    models: [org/tiny, tiny-vlm]
    datasets: [pages]
    prompts: [ask]
    repeats: 2
    exclude: [{model: tiny-vlm}]
    include: [{name: x, ml_task: vqa, model: {name: org/tiny, env: {A: b}}, dataset: pages, prompt: ask}]
    resources: &r {cpus: 2, memory_gb: 8, time_limit: "01:00:00", gpu_type: a100}
run_tasks:
  - {name: y, ml_task: kie, model: org/tiny, dataset: pages, prompt: ask, resources: *r,
     packages: [{name: p, source: {type: pypi, name: p, version: "1"}}], metrics: [kie_f1_micro]}
notifications: [{plugin: webhook, when: [done], options: {url: "${env:HOME}"}}]
trackers: [{plugin: jsonl, options: {path: x.jsonl}}]
reports: [html]
stages: [inference, evaluation]
""",
    """\
name: old
tasks:
  - name: z
    ml_task: ocr
    model: {name: org/tiny, framework: vllm, docker_image: a/b:1, engine_params: {x: 1},
            params: {max_tokens: 5}}
    dataset: pages
    custom_packages: [{name: q, source: {type: git, url: "https://x/y.git", ref: v1}}]
""",
]  # fmt: skip

WORDS = [
    "null", "no", "yes", "~", "2024-01-01", "1e999", ".inf", "-1", "0", "99999999999999999999", "''", '"',
    "[]", "{}", "[[]]", "{a: b}", "&r", "*r", "<<: *r", "!!binary x", "!!python/object:os.system x", "\t",
    "\u0000", "\u2028", "ÿ", "😀", "name:", "run_tasks:", "- ", "  ", ":", ": ", "#", "---", "...", "|", ">",
    "%", "@", "`", "?", ",", "docker://", "hf://", "interpreter:x", "../../..", "/dev/null",
    "${env:NOT_SET}", "${file:/}", "{{ x }}", "{% if %}", "dotted.path.Class", "os.system", "x" * 300,
    "schema_version: 2\n", "+reports",
]  # fmt: skip


def cut(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text))
    return text[:start] + text[start + chance.randint(1, 20) :]


def put(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text))
    return text[:start] + chance.choice(WORDS) + text[start:]


def swap_value(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    number = chance.randrange(len(lines))
    key, colon, _ = lines[number].partition(": ")
    lines[number] = f"{key}{colon}{chance.choice(WORDS)}" if colon else chance.choice(WORDS)
    return "\n".join(lines)


def move_line(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    lines.insert(chance.randrange(len(lines)), lines.pop(chance.randrange(len(lines))))
    return "\n".join(lines)


def double_line(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    number = chance.randrange(len(lines))
    return "\n".join([*lines[:number], lines[number], *lines[number:]])


def indent(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    number = chance.randrange(len(lines))
    lines[number] = chance.choice(["  ", " ", "\t"]) + lines[number]
    return "\n".join(lines)


def misspell(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text) - 1)
    return text[:start] + text[start + 1] + text[start] + text[start + 2 :]


CHANGES: list[Callable[[str, random.Random], str]] = [
    cut, put, swap_value, move_line, double_line, indent, misspell,
]  # fmt: skip


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_damaged_plan_is_a_plan_or_a_mistake_with_a_place(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = Files(tmp_path)
    files.write(
        "sites/here.yaml",
        "name: here\nexecutor: slurm\nslurm: {partition: g, partitions: {g: {cpus: 8}}}\n",
    )
    chance = random.Random(batch)
    reported = plans = 0
    for _ in range(PLANS):
        text = chance.choice(SOURCES)
        for _ in range(chance.randint(1, 4)):
            text = chance.choice(CHANGES)(text, chance) or "x"
        path = files.plan(text.encode(errors="replace").decode())
        mode = chance.choice(["prod", "dev"])
        try:
            load_plan(path, [files.registry], (), mode)  # type: ignore[arg-type]
        except UserError as error:
            reported += 1
            for problem in error.problems:
                assert problem.file is not None, text
                assert problem.line is not None, (problem, text)
                assert problem.column is not None, (problem, text)
                assert len(problem.message) < 1500, (problem, text)
        else:
            plans += 1
    assert reported + plans == PLANS
    assert reported > PLANS / 2
