"""`python -m tests.packages.contracts FOLDER`: contracts of a folder's plugins, as JSON on stdout.

FOLDER is what `pip install --target` made. A row: a plugin as `KIND/NAME`, a contract, its problem or null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from hpcbench import plugins
from hpcbench.cli.plugins import tried


def rows(folder: Path) -> Iterator[tuple[str, str | None, str | None]]:
    """Each contract of each plugin that a folder adds."""
    shipped = {kind: set(plugins.available(kind)) for kind in plugins.REQUIRED}
    plugins.add_folder(folder)
    for kind, known in shipped.items():
        for name in sorted(set(plugins.available(kind)) - known):
            for row in tried(kind, name):
                yield f"{kind}/{name}", row["contract"], row["problem"]


if __name__ == "__main__":
    print(json.dumps(list(rows(Path(sys.argv[1])))))  # noqa: T201
