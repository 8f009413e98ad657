"""Architectures of shipped models with random weights of a tiny shape, in the real Hugging Face engine.

Their answers are nonsense, but the path is the real one: configuration, weights, processor, chat template,
tokens of a page, batches, streams. One runs in `make test`, all in `make test-models`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
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
"""What processors import besides; of the first, PyPI's build for GPUs, transforms alone are used."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with those packages, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("packages")
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    done = subprocess.run([*words, *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(f"no packages of processors: {done.stderr[-300:]}")
    (folder / "sitecustomize.py").write_text(TORCHVISION)
    return folder


@pytest.mark.parametrize("name", first(1, names()))
def test_a_page_goes_through_a_tiny_checkpoint(
    name: str, packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(packages), str(contract.ROOT))))
    words = [sys.executable, "-m", "tests.engine.architectures", name, tmp_path]
    made = subprocess.run(words, cwd=contract.ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    with contract.started(
        ENGINE, model_path=str(tmp_path), context_length=4096, images=2
    ) as engine:
        tokens = asyncio.run(_answers(engine))
    print(f"| `{name}` | {tokens} | {', '.join(definitions(name)) or '–'} |")


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
