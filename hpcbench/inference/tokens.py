"""A second opinion on the number of tokens: the model's own tokenizer, counting the text of each answer.

The engine's count holds more than the text shows: the token that ended the answer (one, where
`finish_reason` is `stop`), and special tokens that it left out. Whoever compares must allow for that one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def counter(folder: Path) -> tuple[Callable[[str], int] | None, str]:
    """What counts tokens as the model in `folder` does; or None, and why there is none."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None, f"there is no {file}"
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None, "the package tokenizers is not installed"
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 (the package raises plain Exception)
        return None, f"{file} cannot be read: {error}"

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return count, ""
