"""An independent token count: the model's own tokenizer counts the text of each answer.

The engine's count includes more than the text: the token that ended the answer (one, if `finish_reason` is
`stop`), and special tokens that the text omits. A comparison must allow for the ending token.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def counter(folder: Path) -> tuple[Callable[[str], int] | None, str]:
    """A function that counts tokens as the model in `folder` does; or None, and the reason."""
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
