"""Definitions of VLMHyperBench v0.2 as their users have them, and what they name, as a test adds it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = ROOT / "tests/inputs/v02"

QUESTIONS = [
    "Какая сумма указана в счёте?",
    "Кто поставщик?",
    "Какая дата?",
    "Сколько строк в таблице?",
]


def v02_registry(folder: Path, engine: str = "vllm", more: str = "") -> Path:
    """A copy of the three definitions, and beside them the models, dataset and run task that they name.

    Args:
        folder: where the registry is made.
        engine: engine of the models.
        more: further lines of the definitions of the models.
    """
    registry = folder / "configs"
    shutil.copytree(DOCUMENTS, registry)
    data = folder / "data"
    data.mkdir()
    images = sorted((ROOT / "examples/demo/data/images").rglob("*.png"))[: len(QUESTIONS)]
    rows = ["data_index;split;image_path;question;answer;doc_class;question_type;answer_bbox"]
    for number, (image, question) in enumerate(zip(images, QUESTIONS, strict=True)):
        shutil.copy(image, data / image.name)
        rows.append(f"{number};test;{image.name};{question};{number};invoice;total;[]")
    (data / "annotation.csv").write_text("\n".join(rows) + "\n", encoding="utf-8-sig")
    write(registry, "datasets/docvqa_ru.yaml",
          "name: docvqa_ru\ntype: vlmhyperbench.datasets.VQADataset\npath: ../../data\n")  # fmt: skip
    for name in ("Qwen2-VL", "LLaVA 1.5"):
        write(registry, f"models/{name.split()[0].lower()}.yaml",
              f"name: {name}\nengine: {engine}\nsource: {ROOT / 'examples/demo/model'}\ngpus: 0\n"
              f"dtype: float32\ncontext_length: 1024\n{more}")  # fmt: skip
    write(registry, "run_tasks/other.yaml",
          f'name: llava_docvqa_ru\nml_task: VQA\nmodel: {{name: "LLaVA 1.5", framework: {engine}}}\n'
          "dataset: docvqa_ru\nmetrics: [ANLS, cer]\n")  # fmt: skip
    return registry


WORDS = '''
"""A task as v0.2 plans it: a package with __main__; a client with a semaphore of CONCURRENCY, the key in
X-API-Key, the parameters in model_params; id, prediction and ground_truth by commas."""
import asyncio, base64, csv, json, os, urllib.request

task = json.load(open("run_task.json", encoding="utf-8"))
MODEL = task["model"]


def post(item):
    with open(item["image_path"], "rb") as file:
        page = "data:image/png;base64," + base64.b64encode(file.read()).decode()
    question = item["user_prompt"] or item["metadata"]["question"]
    content = [{"type": "text", "text": question}, {"type": "image_url", "image_url": {"url": page}}]
    body = {"model": MODEL["name"], "messages": [{"role": "user", "content": content}],
            "model_params": {"max_tokens": 4, "temperature": 0}}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"X-API-Key": os.environ["AUTH_TOKEN"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found = json.load(answer)
    assert found["usage"]["completion_tokens"] <= 4, "model_params reach the model"
    return found["choices"][0]["message"]["content"]


async def main():
    free = asyncio.Semaphore(int(os.environ["CONCURRENCY"]))

    async def one(item):
        async with free:
            return item["id"], await asyncio.to_thread(post, item), ""

    rows = await asyncio.gather(*map(one, task["items"]))
    with open("answers.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "prediction", "ground_truth"), *rows])


if __name__ == "__main__":
    asyncio.run(main())
'''
"""v0.2 leaves two things open, which are of hpcbench: `run_task.json`, and the address, `OPENAI_BASE_URL`."""


def write(registry: Path, name: str, text: str) -> Path:
    """A definition by its path below a registry."""
    path = registry / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def own_module() -> str:
    """The module that docs/own-modules.md shows."""
    page = (ROOT / "docs/own-modules.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```python\n# my_project/tasks/own\.py\n(.+?)```", page, re.DOTALL)
    return str(found)


def own_package(folder: Path, module: str | None = None) -> str:
    """A git repository with a package whose modules answer samples; its address as v0.2 writes it."""
    work = folder / "my-project"
    write(work, "my_project/__init__.py", "")
    write(work, "my_project/tasks/__init__.py", "")
    write(work, "my_project/tasks/own.py", own_module() if module is None else module)
    write(work, "my_project/tasks/words/__init__.py", "")
    write(work, "my_project/tasks/words/__main__.py", WORDS)
    write(work, "pyproject.toml",
          '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
          '[project]\nname = "my-project"\nversion = "1.0"\n'
          '[tool.hatch.build.targets.wheel]\npackages = ["my_project"]\n')  # fmt: skip
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "One"], ["tag", "v1"]):
        own = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(work), *own, *words], check=True)
    return f"git+{work.as_uri()}@v1"
