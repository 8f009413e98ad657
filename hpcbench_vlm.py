"""The command `hpcbench`: starts it, unless the package `hpcbench` is another project's.

PyPI has a distribution `hpcbench` of another project. Installed into the same environment, it replaces files
of ours; on PYTHONPATH, it hides ours. Only a module of another name can say so.
"""

from __future__ import annotations

import sys


def entry() -> None:
    """The console script."""
    import hpcbench

    if getattr(hpcbench, "DISTRIBUTION", None) == "hpcbench-vlm":
        from hpcbench.cli.main import entry as run

        run()
    places = ", ".join(getattr(hpcbench, "__path__", ())) or "an unknown place"
    sys.stderr.write(
        f"hpcbench: the package hpcbench in {places} is another project's, or damaged"
        f" ({sys.executable} -m pip uninstall -y hpcbench hpcbench-vlm, install hpcbench-vlm again,"
        " and let PYTHONPATH lead to no other hpcbench)\n"
    )
    sys.exit(3)
