"""A real portal of its own process, and a real browser that watches what a page must never do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from tests.help_examples import example
from tests.user import until

CHROMIUM = os.environ.get("HPCBENCH_CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",  # the tests are root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    # A page that ignores them instead connects twice for each socket, and sometimes too often for Chromium.
    "--ignore-certificate-errors",
    # One process draws all pages: a new one for each page takes half of the time that the page takes.
    "--process-per-site",
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
)


@dataclass
class Running:
    """`hpcbench portal --tcp`, as a user starts it."""

    home: Path
    plans: Path
    folder: Path
    """Folder of its socket, index, state and log."""
    more: tuple[str, ...] = ()
    """Further options."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Environment of the portal and of its clients."""
        places = {
            "XDG_RUNTIME_DIR": self.folder / "run",
            "XDG_CACHE_HOME": self.folder / "cache",
            "XDG_STATE_HOME": self.folder / "state",
            "HPCBENCH_HOME": self.home,
            "HOME": self.folder,
        }
        for path in places.values():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {**os.environ, **{name: str(path) for name, path in places.items()}}

    def start(self, port: int | None = None) -> None:
        """Start it, and wait until it answers."""
        words = [*example("portal --tcp"), "--plans", str(self.plans), *self.more]
        if port is not None:
            words += ["--port", str(port)]
        with (self.folder / "output.log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hpcbench.cli.main", *words],
                env=self.environ, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until(lambda: bool(self.asked("status", check=False).get("running")), 60, "an answer")

    def stop(self) -> None:
        """Ctrl-C."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def __enter__(self) -> Running:
        """Started; it is stopped however the test ends."""
        self.folder.mkdir(exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def link(self) -> str:
        """A fresh link, as `hpcbench portal url` prints it for this host."""
        return str(self.asked("url")["here"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.asked("status")["port"])

    @property
    def log(self) -> str:
        """All it has written: output and logs."""
        files = [path for path in self.folder.rglob("*.log") if path.is_file()]
        return "\n".join(path.read_text(errors="replace") for path in files)

    def asked(self, verb: str, *, check: bool = True) -> dict[str, Any]:
        """Output of `hpcbench portal VERB --json`."""
        done = subprocess.run(
            [sys.executable, "-m", "hpcbench.cli.main", "portal", verb, "--json"],
            env=self.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
        return found


@dataclass
class Watch:
    """Forbidden things that pages did."""

    origin: str
    below: str = "/"
    """Path that no request may leave."""
    errors: list[str] = field(default_factory=list)
    """Errors of the console, exceptions, violations of the content security policy."""
    strayed: list[str] = field(default_factory=list)
    """Requests to other origins, or beside the path."""
    failed: list[str] = field(default_factory=list)
    """Requests that came to nothing."""
    dialogs: list[str] = field(default_factory=list)
    """Dialogs: some text has become a script."""
    expects_faults: bool = False
    """Whether the test takes the server away, so that requests fail."""

    def follow(self, page: Page) -> None:
        """Watch a page."""
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("request", self._request)
        page.on("requestfailed", self._failure)
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def leave(self, page: Page) -> None:
        """Loads that are cut off when it is closed may come to nothing; all that it did before is known."""
        if not page.is_closed():
            page.title()
            page.remove_listener("console", self._console)
            page.remove_listener("pageerror", self._error)
            page.remove_listener("requestfailed", self._failure)

    def check(self) -> None:
        """Nothing of that has happened."""
        assert not self.dialogs, self.dialogs
        assert not self.strayed, self.strayed
        if not self.expects_faults:
            assert not self.errors, self.errors
            assert not self.failed, self.failed

    def _error(self, error: object) -> None:
        self.errors.append(str(error))

    def _console(self, message: ConsoleMessage) -> None:
        # One text is checked at a time; the page asks again.
        waits = "503" in message.text and "definitions/check" in str(message.location.get("url"))
        if message.type == "error" and not waits:
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("data", "blob"):
            return
        elsewhere = f"{address.scheme}://{address.netloc}" != self.origin
        if elsewhere or not address.path.startswith(self.below):
            self.strayed.append(request.url)

    def _failure(self, request: Request) -> None:
        # A page that is left takes its requests back.
        if "ERR_ABORTED" not in str(request.failure):
            self.failed.append(f"{request.url}: {request.failure}")


@contextlib.contextmanager
def opened(
    browser: Browser, watch: Watch, address: str, **options: Any
) -> Iterator[tuple[BrowserContext, Page]]:
    """A browser of its own at an address, once its page is there: to leave it earlier logs an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(90_000)  # as `expect`, for a busy machine
    try:
        page = context.new_page()
        watch.follow(page)
        page.goto(address)
        page.get_by_role("navigation").first.wait_for()
        page.get_by_role("heading", level=1).first.wait_for()
        yield context, page
        for one in context.pages:
            watch.leave(one)
    finally:
        context.close()


def tab(
    browser: Browser, running: Running, watch: Watch, **options: Any
) -> contextlib.AbstractContextManager[tuple[BrowserContext, Page]]:
    """A browser of its own, signed in."""
    return opened(browser, watch, running.link(), **options)


@contextlib.contextmanager
def portal_of(
    browser: Browser, home: Path, plans: Path, folder: Path
) -> Iterator[tuple[Page, Watch]]:
    """A page of a portal of its own over a home, signed in and watched; `folder` is the portal's."""
    with Running(home, plans, folder) as portal:
        watch = Watch(f"http://localhost:{portal.port}")
        with tab(browser, portal, watch) as (_, page):
            yield page, watch
    watch.check()


def answered(page: Page) -> int:
    """Answers that the page of an experiment shows."""
    text = page.get_by_text(re.compile(r"[\d,]+ of [\d,]+ samples")).first.inner_text()
    return int(re.sub(r"\D", "", text.split(" of ")[0]))
