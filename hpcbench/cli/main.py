"""`hpcbench VERB …`: the only place that turns errors into lines and exit codes.

This module imports no heavy module, not even of the standard library: each verb imports its own modules.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import hpcbench
from hpcbench import garbage
from hpcbench.cli.parse import parser
from hpcbench.errors import HpcbenchError, UserError


def entry() -> None:
    """The console script."""
    # Verbs read thousands of small records that stay alive: searching them for cycles takes a quarter of the
    # time of `status`.
    gc.set_threshold(200_000, 20, 20)
    garbage.skip_last_collection()
    _prepare_streams()
    # pydantic would search all installed distributions for its plugins; hpcbench has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if "_ARGCOMPLETE" in os.environ:
        from hpcbench.cli.completion import complete

        complete()
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments: Any = None
    try:
        _check_words(words)
        arguments = parser(words).parse_args(words)
        plan = getattr(arguments, "plan", None)
        if isinstance(plan, os.PathLike) and not os.path.lexists(plan):
            from hpcbench.cli.plan_names import plan_called

            arguments.plan = plan_called(plan, getattr(arguments, "registry", ()))
        module, function = _run(arguments).split(":")
        code = getattr(importlib.import_module(module), function)(arguments)
        sys.stdout.flush()
        return int(code or 0)
    except UserError as error:
        return _refuse(_named_as_typed(error, arguments), arguments)
    except HpcbenchError as error:
        print(f"hpcbench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()
        return 0
    except SystemExit:
        raise
    except BaseException as bug:  # noqa: BLE001 - the last net: a user sees no traceback, nor a panic of Rust
        from hpcbench.cli import system_errors

        known = system_errors.explain(bug, words)
        if known is None:
            return _report_bug(bug)
        if isinstance(known, UserError):
            return _refuse(known, arguments)
        print(f"hpcbench: {known}", file=sys.stderr)
        return known.exit_code
    finally:
        _flush()


def _prepare_streams() -> None:
    """Make the process's streams writable, whatever its parent passed.

    The next opened file would reuse a closed descriptor (`>&-`). If the terminal's encoding lacks a
    character, an escape replaces it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one
            if getattr(sys, name) is None:
                stream = open(opened, "r" if descriptor == 0 else "w", encoding="utf-8")  # noqa: PTH123, SIM115
                setattr(sys, name, stream)
    codecs.register_error("hpcbench.escape", _escape)
    for written in (sys.stdout, sys.stderr):
        if isinstance(written, io.TextIOWrapper):
            written.reconfigure(errors="hpcbench.escape")


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write a character as JSON does, `\\uXXXX`, so that the output of --json is JSON in every encoding."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


def _flush() -> None:
    """Flush the output, so that Python reports no error at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard_output()


def _discard_output() -> None:
    """Discard output that no process reads any more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_words(words: Sequence[str]) -> None:
    """Refuse arguments that are not text, as they become names in UTF-8 files.

    Raises:
        UserError: an argument contains bytes that the locale's encoding cannot decode.
    """
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UserError(
                f"an argument is not text in this locale's encoding: {word}",
                remedy="give the file a name in UTF-8, and use a UTF-8 locale such as LC_ALL=C.UTF-8",
            )
        if "\0" in word:
            raise UserError(f"an argument contains a NUL byte: {word}", remedy="remove the byte")


def _run(arguments: Any) -> str:
    """Module and function of a verb, or the function that runs it on the cluster of `--site`."""
    if arguments.verb == "submit" and arguments.plan is None:
        return "hpcbench.cli.start:without_plan"
    if arguments.site is None or arguments.verb in ("init", None):
        return str(arguments.run)
    if not getattr(arguments, "elsewhere", False):
        what = f"{arguments.verb} runs on this machine only"
        raise UserError(what, remedy="leave --site out, or log in to the cluster")
    return "hpcbench.cli.at_site:elsewhere"


def _named_as_typed(error: UserError, arguments: Any) -> UserError:
    """Mistakes with the user's own options: verbs that turn options into settings record them in `typed`."""
    typed = getattr(arguments, "typed", None)
    if not typed:
        return error
    from hpcbench.registry.settings import named_as_typed

    return named_as_typed(error, typed)


def _refuse(error: UserError, arguments: Any) -> int:
    """Print the problems of a user's input: as lines, with --json also as data with their places."""
    as_json = getattr(arguments, "json", False)
    if as_json:
        import json

        problems = [one._asdict() for one in error.problems]
        with contextlib.suppress(BrokenPipeError):  # `| head` has read enough
            print(json.dumps({"problems": problems}, ensure_ascii=False, indent=2))
    # A program reads one output and a person the other; one terminal would show both.
    if not (as_json and sys.stdout.isatty() and sys.stderr.isatty()):
        print(error, file=sys.stderr)
    return error.exit_code


def _report_bug(bug: BaseException) -> int:
    """Write the traceback to a file, and one line to the user."""
    import tempfile
    import time
    import traceback

    text = "".join(traceback.format_exception(type(bug), bug, bug.__traceback__))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    descriptor, path = tempfile.mkstemp(prefix=f"hpcbench-bug-{stamp}-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"hpcbench {hpcbench.__version__}, Python {sys.version}\n\n{text}")
    place = _place_in_plugin(bug)
    whose = "a bug of hpcbench" if place is None else f"a plugin failed at {place}"
    what = "please report it" if place is None else "correct the plugin, or leave it out"
    print(
        f"hpcbench: {whose}: {type(bug).__name__}: {bug}\n  the traceback is in {path}; {what}",
        file=sys.stderr,
    )
    return 1


def _place_in_plugin(bug: BaseException) -> str | None:
    """FILE:LINE of a plugin's code where an error began; None: no code but ours and that of libraries."""
    from hpcbench import plugins

    known: set[str] = set()
    with contextlib.suppress(HpcbenchError):
        for kind in plugins.REQUIRED:
            points = plugins.available(kind).values()
            known |= {point.module.partition(".")[0] for point in points}
    return plugins.place_in(bug, known - {"hpcbench"})


if __name__ == "__main__":
    entry()
