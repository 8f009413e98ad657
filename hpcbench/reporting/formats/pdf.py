"""`report.pdf`: the HTML report on paper, by an installed converter; without one it raises an error."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hpcbench.errors import EnvironmentFault
from hpcbench.reporting.formats import Format, html
from hpcbench.subprocesses import run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Browsers that print without a screen, most common first."""

_DATES = re.compile(rb"/(CreationDate|ModDate) ?\(D:\d{14}")


class Options(html.Options):
    """Options of the PDF report."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Longest time that the converter may take, seconds."""


class Pdf(Format):
    """`report.pdf`, printed by Chromium, WeasyPrint or wkhtmltopdf."""

    Options = Options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report.

        Raises:
            EnvironmentFault: no converter is installed, or no installed converter wrote a file.
        """
        page = html.page(tables, self.options, printed=True)
        return {"report.pdf": _printed(page, self.options.timeout)}


def _printed(page: str, timeout: float) -> bytes:
    """Print a page with the first converter that succeeds."""
    failed = ""
    with tempfile.TemporaryDirectory(prefix="hpcbench-pdf-") as name:
        source, target = Path(name) / "report.html", Path(name) / "report.pdf"
        source.write_text(page, encoding="utf-8")
        for argv in _converters(source, target):
            failed = _tried(argv, target, timeout)
            if not failed:
                # The same report gives the same bytes: the manifest contains its time.
                return _DATES.sub(rb"/\1 (D:19700101000000", target.read_bytes())
    if failed:
        raise EnvironmentFault(f"no PDF: {failed}", remedy="print report.html from a browser")
    raise EnvironmentFault(
        "no PDF: neither chromium nor weasyprint nor wkhtmltopdf is on PATH",
        remedy="install one of them, or print report.html from a browser",
    )


def _converters(source: Path, target: Path) -> Iterator[list[str]]:
    """Commands to try, in order."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is not None:
        profile = source.parent / "profile"
        words = [
            "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-quic",
            f"--user-data-dir={profile}", "--no-pdf-header-footer", f"--print-to-pdf={target}",
            source.as_uri(),
        ]  # fmt: skip
        if os.geteuid() != 0:
            yield [browser, *words]
        # Its sandbox needs user namespaces, which root and many clusters do not have. The page is hpcbench's,
        # and its policy lets it neither run scripts nor fetch anything.
        yield [browser, "--no-sandbox", *words]
    if found := shutil.which("weasyprint"):
        yield [found, str(source), str(target)]
    if found := shutil.which("wkhtmltopdf"):
        yield [found, "--quiet", "--disable-javascript", str(source), str(target)]


def _tried(argv: list[str], target: Path, timeout: float) -> str:
    """Run a converter; returns the error, empty where it wrote a file."""
    name = Path(argv[0]).name
    try:
        ended = run(argv, timeout)
    except OSError as error:
        return f"{name}: {error.strerror}"
    if ended.late:
        return f"{name} took longer than {timeout:g} s"
    if target.is_file() and target.stat().st_size:
        return ""
    return f"{name} exited with code {ended.code}: {ended.message}"
