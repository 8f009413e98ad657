"""The shared contract, kept by the engines that need nothing but this Python; vLLM's is in test_vllm.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine import contract

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine() -> Iterator[contract.Engine]:
    """Hugging Face transformers with the tiny model."""
    name = "hpcbench.engines.huggingface:HuggingFaceEngine"
    with contract.started(name, context_length=1024, images=2) as engine:
        yield engine


@pytest.mark.parametrize("check", contract.CHECKS)
def test_hugging_face(engine: contract.Engine, check: str) -> None:
    contract.run(engine, check)
