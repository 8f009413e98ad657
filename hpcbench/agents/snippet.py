"""The tool `python`: a snippet of a model's code, in a process that ends with it."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.plugins import ToolContext, ToolError, ToolReturn

MOST_PRINTED = 20_000
"""Characters that a model gets of what a snippet prints."""

MOST_IMAGES = 4
"""Images that a model gets of a snippet, at most."""

_NAME = "<snippet>"


class Python:
    """Runs Python code and returns what it prints, and the value of its last line.

    Nothing is kept between calls. The list `images` has the paths of all images that you saw, in order.
    Images that the code saves in the current folder, as .png or .jpg, are shown to you. There is no network.
    """

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = True
    untrusted: ClassVar[bool] = True

    class Options(BaseModel):
        """The tool has no options."""

        model_config = ConfigDict(extra="forbid")

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

        code: str = Field(min_length=1, max_length=50_000)
        """The code."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn:
        """Run the snippet; returns its output, its last value, its images.

        Raises:
            ToolError: the snippet raises.
        """
        printed = _Printed()
        names: dict[str, Any] = {
            "__name__": "__main__",
            "images": [str(one) for one in context.images],
        }
        linecache.cache[_NAME] = (0, None, arguments.code.splitlines(keepends=True), _NAME)
        sys.argv[:] = [_NAME]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                _run(arguments.code, names)
            except SystemExit as ended:
                if ended.code not in (None, 0):
                    print(f"SystemExit: {ended.code}", file=printed)
            except MemoryError:
                raise
            except BaseException as error:  # noqa: BLE001 - the snippet's failure is the result
                raise ToolError(f"{printed.text()}{_traceback(error)}"[-MOST_PRINTED:]) from None
        found = sorted(
            path for path in context.folder.iterdir()
            if path.suffix.lower() in (".png", ".jpg", ".jpeg") and path.is_file()
        )  # fmt: skip
        text = printed.text() or ("" if found else "(it printed nothing)")
        if len(found) > MOST_IMAGES:
            text += f"\n(the first {MOST_IMAGES} of {len(found)} images are shown)"
        return [text.strip("\n"), *(path.read_bytes() for path in found[:MOST_IMAGES])]

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Arguments for the contract tests."""
        return {"arguments": {"code": "sum(range(10))"}}


def _run(code: str, names: dict[str, Any]) -> None:
    """Run a snippet; print the value of its last line if that is an expression, as in a notebook."""
    tree = ast.parse(code, _NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _NAME, "exec"), names)  # noqa: S102 - this tool is isolated for that
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), _NAME, "eval"), names)  # noqa: S307
        if value is not None:
            sys.stdout.write(f"{value!r}\n")


def _traceback(error: BaseException) -> str:
    """The error with its lines of the snippet only."""
    lines = traceback.TracebackException.from_exception(error)
    lines.stack = traceback.StackSummary.from_list(
        [one for one in lines.stack if one.filename == _NAME]
    )
    return "".join(lines.format()).strip()


class _Printed(io.TextIOBase):
    """Keeps the beginning of what is printed."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._size < MOST_PRINTED:
            self._kept.append(text[: MOST_PRINTED - self._size])
        self._size += len(text)
        return len(text)

    def text(self) -> str:
        """The kept text, and how much more there was."""
        rest = self._size - MOST_PRINTED
        more = f"\n… {rest} characters more\n" if rest > 0 else ""
        return "".join(self._kept) + more
