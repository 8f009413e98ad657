"""`python -m hpcbench.portal.openapi [--out FILE]`: the API's description, reproducible byte by byte."""

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
    # Types are generated from it: they change with the API, not with each release.
    found["info"]["version"] = "1"
    return json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Print the description, or write it to a file."""
    parser = argparse.ArgumentParser(
        description="Write the OpenAPI description of the portal's API."
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write; without it, standard output"
    )
    out = parser.parse_args().out
    if out is None:
        sys.stdout.write(description())
    else:
        write_atomic(out, description())


if __name__ == "__main__":
    main()
