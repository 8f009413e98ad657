"""Names of figures."""

from __future__ import annotations

import hashlib
import re


def stem(*parts: str) -> str:
    """Parts of a name as the stem of a file; a hash replaces the difference that a file name cannot hold."""
    kept = [part for part in parts if part]
    plain = [re.sub(r"[^A-Za-z0-9_.-]+", "-", part).strip("-.") for part in kept]
    name = "-".join(filter(None, plain))[:80]
    if plain == kept and name == "-".join(kept):
        return name
    return f"{name}-{hashlib.sha256('|'.join(kept).encode(errors='replace')).hexdigest()[:8]}"
