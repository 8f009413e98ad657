"""Counting tokens by the model's own tokenizer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench.inference.tokens import counter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer that knows a few words."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "total": 1, "is": 2, "<s>": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    # as many models do: a token in front of every text, which no answer holds
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 3)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_tokens_of_the_text_alone_are_counted(folder: Path) -> None:
    count, why_not = counter(folder)
    assert (count is not None, why_not) == (True, "")
    assert count is not None
    assert [count(text) for text in ("", "total", "the total is 12")] == [0, 1, 4]


def test_what_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counter(folder / "no") == (None, f"there is no {folder / 'no' / 'tokenizer.json'}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert counter(folder) == (None, "the package tokenizers is not installed")


def test_a_broken_file_is_named(folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text("{}")
    count, why_not = counter(folder)
    assert count is None
    assert why_not.startswith(f"{file} cannot be read: ")
