"""Reading and checking definitions: 2,000 of a registry, and a plan of 1,000 run tasks from one matrix.

Prints the time of the whole process, cold start of Python included (targets: under 1 s and under 2 s), beside
a bare process that only reads the same files with PyYAML's C parser.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS, DATASETS, PROMPTS, METRICS, TASKS = 500, 500, 400, 100, 500
RUNS = 5

BARE = """
import pathlib, sys, yaml
loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
for path in pathlib.Path(sys.argv[1]).rglob("*.yaml"):
    yaml.load(path.read_text(), loader)
"""


def write(folder: Path) -> None:
    """A registry of 2,000 definitions and a plan over a matrix of it."""

    def put(name: str, text: str) -> None:
        path = folder / "registry" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    for number in range(MODELS):
        put(
            f"models/org/m{number}",
            f"""\
schema_version: 1
name: org/m{number}
description: Model number {number}.
family: Made up
source: ../../../weights/m{number}
engine: vllm
dtype: bfloat16
context_length: 32768
gpus: 1
engine_options: {{max_num_seqs: 16, limit_mm_per_prompt: {{image: 1}}}}
""",
        )
    for number in range(DATASETS):
        put(
            f"datasets/d{number}",
            f"""\
schema_version: 1
name: d{number}
source: ../../data/d{number}
annotations: a.jsonl
splits: [easy, hard]
split: easy
fields: [question]
group_by: [doc_type, language]
mapping: {{id: questionId, references: answers, definition: docId}}
""",
        )
    for number in range(PROMPTS):
        put(
            f"prompts/p{number}",
            f"""\
schema_version: 1
name: p{number}
user: "{{{{ question }}}} ({{{{ language }}}}, {{{{ doc_type }}}}, wording {number})"
""",
        )
    for number in range(METRICS):
        put(
            f"metrics/anls{number}",
            f"name: anls{number}\nplugin: anls\noptions: {{tau: 0.{number + 1}}}\n",
        )
    for number in range(TASKS):
        put(
            f"run_tasks/t{number}",
            f"""\
name: t{number}
ml_task: vqa
model: org/m{number % MODELS}
dataset: d{number % DATASETS}
prompt: p{number % PROMPTS}
generation: {{max_tokens: 64}}
resources: {{cpus: 4, memory_gb: 32}}
""",
        )
    names = [
        f"[{', '.join(f'{name}{number}' for number in range(10))}]" for name in ("org/m", "d", "p")
    ]
    (folder / "plan.yaml").write_text(
        "name: grid\nmatrix:\n  - ml_task: vqa\n"
        f"    models: {names[0]}\n    datasets: {names[1]}\n    prompts: {names[2]}\n"
    )


def seconds(argv: list[str], environ: dict[str, str]) -> float:
    """The best of some runs of a whole process."""
    best = float("inf")
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run(argv, check=True, env=environ, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    """Write, time, print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        registry = str(folder / "registry")
        environ = {**os.environ, "XDG_CONFIG_HOME": name, "RUN_MODE": "dev"}
        command = [sys.executable, "-m", "hpcbench.cli.main", "validate", "--registry", registry]
        bare = seconds([sys.executable, "-c", BARE, registry], environ)
        whole = seconds(command, environ)
        matrix = seconds([*command, str(folder / "plan.yaml")], environ)
        count = MODELS + DATASETS + PROMPTS + METRICS + TASKS
        print(f"{count} definitions read with PyYAML alone      {bare:6.2f} s")
        print(
            f"{count} definitions read and cross-checked      {whole:6.2f} s  ({whole / bare:.1f} times)"
        )
        print(f"a plan of 1,000 run tasks from one matrix    {matrix:6.2f} s")


if __name__ == "__main__":
    main()
