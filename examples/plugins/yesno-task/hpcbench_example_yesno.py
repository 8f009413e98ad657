"""A task whose answer is yes or no, in English, Russian, German and French."""

from __future__ import annotations

import re
from typing import Any, ClassVar

WORDS = {
    "yes": "yes", "true": "yes", "да": "yes", "ja": "yes", "oui": "yes",
    "no": "no", "false": "no", "нет": "no", "nein": "no", "non": "no",
}  # fmt: skip


def yes_or_no(text: str) -> str | None:
    """`yes` or `no` by the first such word; None where both or neither stand in the answer."""
    words = [WORDS[word] for word in re.findall(r"\w+", text.casefold()) if word in WORDS]
    return words[0] if len(set(words)) == 1 else None


class YesNo:
    """The task for hpcbench."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Any) -> str | None:
        return yes_or_no(text)
