"""Makes invisible characters visible that change how text looks: `⟨U+202E⟩`.

Models, datasets and logs may have controls that change the direction of text, characters without width, and
controls of terminals. These make a text look different from its content, in terminals and in pages. Letters
of Arabic or Hebrew stay unchanged, and so do joiners between letters or pictures that need them. The pages
have the same rule in `portal/src/ui/visible.ts`.
"""

from __future__ import annotations

import re
from typing import Any

_JOINED = (
    "\u0590-\u1fff\u2c00-\ud7ff\uf900-\ufdff\ufe0f\U0001f000-\U0001faff\u2600-\u27bf\u2190-\u21ff"
)
"""Letters that joiners connect, and pictures."""

HIDDEN = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    f"|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"
)
"""Controls but tabs and ends of lines, characters without width, tags."""


def visible(text: str) -> str:
    """The text with its hidden characters written out."""
    if text.isascii() and text.isprintable():
        return text  # nearly all are, and the search is slow
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def finalize(value: Any) -> Any:
    """`visible` for every value that a template of Jinja2 writes; markup stays markup."""
    if not isinstance(value, str) or HIDDEN.search(value) is None:
        return value
    text = visible(str(value))
    if hasattr(value, "__html__"):
        from markupsafe import Markup

        return Markup(text)  # noqa: S704 - it was markup before
    return text
