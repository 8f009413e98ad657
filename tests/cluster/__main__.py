"""`python -m tests.cluster up | down | status | env | install | image | vllm`."""

from __future__ import annotations

import argparse
import sys
import time

from .lab import Lab
from .system import LabError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser(
        "install", help="Debian packages, Apptainer and SingularityCE; nothing is started"
    )
    verbs.add_parser("up", help="install what is missing, start everything")
    down = verbs.add_parser("down", help="end everything, keep the data")
    down.add_argument("--purge", action="store_true", help="remove data and user as well")
    verbs.add_parser("status", help="daemons and nodes")
    verbs.add_parser("env", help='for shells: eval "$(python -m tests.cluster env)"')
    verbs.add_parser("image", help="build the Apptainer test image and serve it")
    verbs.add_parser("vllm", help="a virtual environment with vLLM for CPU")
    options = parser.parse_args(arguments)
    lab = Lab.current()
    begin = time.monotonic()
    try:
        match options.verb:
            case "install":
                lab.install()
            case "up":
                lab.up()
            case "down":
                lab.down(purge=options.purge)
            case "image":
                reference, digest = lab.image()
                print(f"{reference}\n{digest}")
            case "vllm":
                print(lab.vllm())
            case "status":
                for name, state in lab.status().items():
                    print(f"{name:<12}{state}")
                return 0
            case "env":
                print(f"export SLURM_CONF={lab.env()['SLURM_CONF']}")
                print(f"export PATH={lab.home}/bin:$PATH")
                return 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 3
    print(f"{options.verb}: done in {time.monotonic() - begin:.1f} s, below {lab.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
