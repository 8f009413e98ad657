"""`hpcbench VERB …`: the parser, and the one place where errors become lines and exit codes.

Nothing heavy is imported here, not even of the standard library: `hpcbench --help` answers at once, and
each verb imports what it needs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hpcbench
from hpcbench.errors import HpcbenchError

EPILOG = """\
examples:
  hpcbench init                      look at this cluster, write a site profile
  hpcbench doctor --run              check it, and send a tiny model through one real job
  hpcbench submit plan.yaml --dry-run
  hpcbench submit plan.yaml --wait
  hpcbench status @last

exit codes: 0 done · 1 the run failed · 2 your input · 3 the environment
"""

EXPERIMENT = "experiment: id, unique beginning of one, path, or @last"


def entry() -> None:
    """The console script."""
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parser().parse_args(argv)
    try:
        module, function = arguments.run.split(":")
        code = getattr(importlib.import_module(module), function)(arguments)
        sys.stdout.flush()
        return int(code or 0)
    except HpcbenchError as error:
        print(f"hpcbench: {error}" if error.exit_code != 2 else str(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as bug:  # noqa: BLE001 - the last net: a user never meets a traceback
        return _report_bug(bug)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="hpcbench",
        description="Benchmark vision-language models on document work on Slurm clusters.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hpcbench {hpcbench.__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, run: str, text: str, example: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"example: {example}",
        )
        added.set_defaults(run=f"hpcbench.cli.{run}")
        return added

    submit = verb(
        "submit", "submit:submit", "run an experiment plan", "hpcbench submit plan.yaml --wait"
    )
    submit.add_argument("plan", type=Path, help="the plan's YAML file")
    submit.add_argument(
        "--registry", type=Path, action="append", default=[], metavar="DIR",
        help="further registry of documents; may be repeated, the last one wins",
    )  # fmt: skip
    submit.add_argument(
        "--dry-run", action="store_true", help="print jobs, shards and sbatch text; touch nothing"
    )
    submit.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    _json(submit)

    resume = verb(
        "resume", "submit:resume", "go on with an experiment", "hpcbench resume 20261120-1432-demo"
    )
    resume.add_argument("experiment", help=EXPERIMENT)
    resume.add_argument("--wait", action="store_true", help="follow it to its end and print scores")
    _json(resume)

    cancel = verb("cancel", "submit:cancel", "end an experiment's jobs", "hpcbench cancel @last")
    cancel.add_argument("experiment", help=EXPERIMENT)

    listing = verb("list", "show:list_experiments", "list experiments", "hpcbench list")
    _json(listing)

    status = verb("status", "show:status", "show how far an experiment is", "hpcbench status @last")
    status.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    _json(status)

    watch = verb("watch", "show:watch", "follow an experiment to its end", "hpcbench watch @last")
    watch.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)

    logs = verb("logs", "show:logs", "show logs of workers and jobs", "hpcbench logs @last")
    logs.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    logs.add_argument("name", nargs="?", help="show the end of this log; none: list all")
    logs.add_argument("-n", "--lines", type=int, default=40, help="lines to show (%(default)s)")
    _json(logs)

    report = verb("report", "show:report", "print scores and the report's path", "hpcbench report")
    report.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    _json(report)

    init = verb("init", "setup:init", "look at this cluster, write a site profile", "hpcbench init")
    init.add_argument("--force", action="store_true", help="replace the profile there is")
    init.add_argument("--dry-run", action="store_true", help="print the profile; write nothing")

    doctor = verb("doctor", "setup:doctor", "check this machine", "hpcbench doctor --run")
    doctor.add_argument(
        "--run", dest="real_run", action="store_true",
        help="also send the tiny model through one real job",
    )  # fmt: skip
    doctor.add_argument(
        "--image", metavar="REF",
        help="image for that job (docker://…, a .sif); it needs transformers; none: this Python",
    )  # fmt: skip
    _json(doctor)
    return top


def _json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def _report_bug(bug: BaseException) -> int:
    """The traceback goes to a file, one line to the user."""
    import tempfile
    import time
    import traceback

    text = "".join(traceback.format_exception(type(bug), bug, bug.__traceback__))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    descriptor, path = tempfile.mkstemp(prefix=f"hpcbench-bug-{stamp}-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"hpcbench {hpcbench.__version__}, Python {sys.version}\n\n{text}")
    print(
        f"hpcbench: a bug of hpcbench: {type(bug).__name__}: {bug}\n"
        f"  the traceback is in {path}; please report it",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    entry()
