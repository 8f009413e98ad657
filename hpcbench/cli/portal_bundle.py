"""`hpcbench portal bundle`: an experiment as a folder that any file server can hand out."""

from __future__ import annotations

import argparse
import sys

from hpcbench.cli.output import print_json, say
from hpcbench.data.progress import size_text
from hpcbench.errors import UserError
from hpcbench.experiment.layout import find, home
from hpcbench.registry.catalog import user_site


def bundle(arguments: argparse.Namespace) -> int:
    """`hpcbench portal bundle EXPERIMENT --out FOLDER|FILE.zip`."""
    if arguments.samples is not None and arguments.samples < 0:
        raise UserError("--samples: samples cannot be fewer than none", remedy="give 0 or more")
    from hpcbench.portal.static_export import Wanted, write

    experiment = find(home(user_site()), arguments.experiment)
    wanted = Wanted(images=arguments.images, logs=arguments.logs, samples=arguments.samples)
    tell = say if sys.stderr.isatty() else lambda line: None
    written = write(experiment, arguments.out, wanted, tell)
    if arguments.json:
        told = {"out": str(arguments.out), "files": written.files, "bytes": written.bytes}
        print_json({**told, "left_out": written.left_out})
        return 0
    for line in written.left_out[:10]:
        say(f"left out: {line}")
    if len(written.left_out) > 10:
        say(f"… and {len(written.left_out) - 10} more")
    print(f"wrote {arguments.out}: {written.files} files, {size_text(written.bytes)}")
    print("any file server shows it: python -m http.server --directory FOLDER")
    return 0
