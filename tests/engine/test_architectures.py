"""Architectures of shipped models with random weights of a tiny shape, in the real Hugging Face engine.

Their answers are nonsense, but the path is the real one: configuration, weights, processor, chat template,
tokens of a page, batches, streams. One runs in `make test`, all in `make test-models`.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcbench.registry.model_table import shipped
from tests.campaign import first
from tests.cluster.vllm_env import TORCHVISION
from tests.conftest import unavailable
from tests.engine import contract
from tests.engine.architectures import ARCHITECTURES, definitions, names
from tests.engine.contract import PAGE, READ, ask

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

ENGINE = "hpcbench.engines.huggingface:HuggingFaceEngine"
PACKAGES = ("torchvision==0.29.1", "num2words==0.5.14", "docopt==0.6.2")
"""Packages that processors import; of the first, PyPI's build for GPUs, transforms alone are used."""


Write = Callable[[str, Path], None]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Write]:
    """Writes checkpoints, in one process for all; engines that start then find the packages, too."""
    folder = tmp_path_factory.mktemp("packages")
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    done = subprocess.run([*words, *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"no packages of processors: {done.stderr[-300:]}")
    (folder / "sitecustomize.py").write_text(TORCHVISION)
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("wb") as log:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(contract.ROOT))))
        command = [sys.executable, "-m", "tests.engine.architectures", "write"]
        with subprocess.Popen(
            command, cwd=contract.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:  # fmt: skip
            assert process.stdin and process.stdout

            def written(name: str, to: Path) -> None:
                assert process.stdin and process.stdout
                print(name, to, file=process.stdin, flush=True)
                assert process.stdout.readline() == f"{name}\n", (folder / "log").read_text()[
                    -3000:
                ]

            yield written
            process.stdin.close()


@pytest.mark.parametrize("name", first(1, names()))
def test_a_page_goes_through_a_tiny_checkpoint(name: str, write: Write, tmp_path: Path) -> None:
    write(name, tmp_path)
    with contract.started(
        ENGINE, model_path=str(tmp_path), context_length=4096, images=2
    ) as engine:
        tokens = asyncio.run(_answers(engine))
    row = f"| `{name}` | {tokens} | {', '.join(definitions(name)) or '–'} |"
    if results := os.environ.get("HPCBENCH_MODELS"):
        (Path(results) / name).write_text(row + "\n")


async def _answers(engine: contract.Engine) -> int:
    """Tokens of the page, of answers that agree."""
    body = {"messages": ask(READ, PAGE), "max_tokens": 8}
    text, reason, usage = await engine.answer(**body)
    assert reason in ("length", "stop")
    assert 1 <= usage["completion_tokens"] <= 8
    *events, last = await engine.stream(**body)
    pieces = (choice["delta"].get("content") for event in events for choice in event["choices"])
    assert "".join(filter(None, pieces)) == text
    assert last["usage"]["prompt_tokens"] == usage["prompt_tokens"]
    two = await engine.answer(messages=ask(READ, PAGE, PAGE), max_tokens=1)
    page: int = two[2]["prompt_tokens"] - usage["prompt_tokens"]
    assert page >= 4
    return page


def test_families_are_those_of_shipped_models() -> None:
    families = {model.family for model in shipped()}
    assert {family for one in ARCHITECTURES.values() for family in one.families} <= families
    assert {name for one in ARCHITECTURES.values() for name in one.only} <= {
        model.name for model in shipped()
    }
    assert len({model for name in names() for model in definitions(name)}) >= 60


def test_the_table_of_the_docs_has_each_architecture_with_its_definitions() -> None:
    page = (contract.ROOT / "docs/engines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| \d+ \| (.*) \|$", page, re.MULTILINE))
    assert {name: rows.get(name) for name in names()} == {
        name: ", ".join(definitions(name)) or "–" for name in names()
    }
