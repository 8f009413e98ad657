"""Examples of `--help` that need real parts: the tests that have these parts running run them.

`tests/unit/test_help_examples.py` runs the others, and finds the calls of `example` by their texts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping


def example(line: str, own: Mapping[str, object] | None = None) -> list[str]:
    """The arguments of an example, `hpcbench LINE`, for a test that runs it.

    Args:
        line: the example without `hpcbench`, as `--help` prints it; a literal.
        own: words of the example that stand for the user's own → the test's.
    """
    replaced = {key: str(value) for key, value in (own or {}).items()}
    words = shlex.split(line)
    missing = replaced.keys() - set(words)
    assert not missing, f"'{line}' has no word {', '.join(sorted(missing))}"
    return [replaced.get(word, word) for word in words]
