"""`hpcbench VERB …`: the one place where errors become lines and exit codes.

Nothing heavy is imported here, not even of the standard library: each verb imports what it needs.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import hpcbench
from hpcbench.cli.parse import parser
from hpcbench.errors import NO_NETWORK, EnvironmentFault, HpcbenchError, UserError, unreached

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
"""Faults of a disk or file server, which no code of ours can help."""


def entry() -> None:
    """The console script."""
    # Verbs read thousands of small records that all live on: looking for circles among them takes a quarter
    # of the time of `status`.
    gc.set_threshold(200_000, 20, 20)
    # pydantic would look through all installed distributions for plugins of its own; we have none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if "_ARGCOMPLETE" in os.environ:
        from hpcbench.cli.completion import complete

        complete()
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parser().parse_args(argv)
    try:
        module, function = _run(arguments).split(":")
        code = getattr(importlib.import_module(module), function)(arguments)
        sys.stdout.flush()
        return int(code or 0)
    except HpcbenchError as error:
        if isinstance(error, UserError) and getattr(arguments, "json", False):
            _print_problems(error)
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
        if isinstance(bug, OSError) and bug.errno in DISK:
            print(f"hpcbench: {_of_disk(bug)}", file=sys.stderr)
            return EnvironmentFault.exit_code
        if (fault := _of_network(bug)) is not None:
            print(f"hpcbench: {fault}", file=sys.stderr)
            return fault.exit_code
        return _report_bug(bug)


def _of_network(error: Exception) -> EnvironmentFault | None:
    """A client's error that no code of ours has met, where no host answered; None: it is a bug."""
    if isinstance(error, (AssertionError, AttributeError, LookupError, NameError, TypeError)):
        return None
    why = unreached(error)
    said = " ".join(str(error).split())[:300]
    if why is None:
        return None
    return EnvironmentFault(f"a host cannot be reached, {why}: {said}", remedy=NO_NETWORK)


def _of_disk(error: OSError) -> EnvironmentFault:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = f": {error.filename}" if error.filename else ""
    remedy = "make room, and do it again" if full else "see whether its file system is well"
    return EnvironmentFault(f"{error.strerror}{where}", remedy=remedy)


def _run(arguments: Any) -> str:
    """Module and function of a verb: its own, or what runs it on the cluster that `--site` names."""
    if arguments.verb == "submit" and arguments.plan is None:
        return "hpcbench.cli.start:without_plan"
    if arguments.site is None or arguments.verb in ("init", None):
        return str(arguments.run)
    if not getattr(arguments, "elsewhere", False):
        raise UserError(f"{arguments.verb} does not run elsewhere", remedy="leave --site out")
    return "hpcbench.cli.remote:elsewhere"


def _print_problems(error: UserError) -> None:
    """What is wrong, for programs: an editor marks the places."""
    import json
    from dataclasses import asdict

    print(
        json.dumps(
            {"problems": [asdict(one) for one in error.problems]}, ensure_ascii=False, indent=2
        )
    )


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
