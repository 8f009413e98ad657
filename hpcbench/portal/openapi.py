"""`python -m hpcbench.portal.openapi [--out FILE]`: the API's description, same bytes for the same code."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hpcbench.files.atomic import write_atomic
from hpcbench.portal.app import application


def description() -> str:
    """The OpenAPI description as JSON."""
    found = application(None).openapi()
    # Types are made from it: they change with the API, not with each release.
    found["info"]["version"] = "1"
    return json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Print it, or write it to a file."""
    parser = argparse.ArgumentParser(description="The portal's API as OpenAPI describes it.")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there; none: print it")
    out = parser.parse_args().out
    if out is None:
        sys.stdout.write(description())
    else:
        write_atomic(out, description())


if __name__ == "__main__":
    main()
