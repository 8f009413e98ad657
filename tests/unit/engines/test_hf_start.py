"""The start of the Hugging Face engine, before a model is loaded."""

from __future__ import annotations

import os
import sys
import types

import pytest

from hpcbench.engines import huggingface


class Loads(Exception):
    """The model is being loaded."""


class Model:
    @classmethod
    def load(cls, path: str, **how: object) -> object:
        raise Loads


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(
    given: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library of threads reads the variable when torch is imported, which loading a model does."""
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    for name, content in (
        ("hf_model", {"HfModel": Model}),
        ("hf_server", {"application": None, "run": None}),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, f"hpcbench.engines.{name}", module)
    with pytest.raises(Loads):
        huggingface.main(["--model", "m", "--name", "n", "--uds", "/s"])
    assert os.environ["OMP_WAIT_POLICY"] == found
