"""The portal below a path of a site's web server, started as docs/portal.md says for Open OnDemand."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from hpcbench.experiment.layout import Experiment
from tests.portal import ondemand
from tests.portal.browsing import Running, Watch, answered, opened
from tests.remote.sshd import free_port
from tests.user import until

HOST = socket.gethostname()


@dataclass
class Site:
    """A site's web server, and the portal behind it."""

    proxy: ondemand.Proxy
    below: str
    """Path of the portal."""
    portal: Running

    @property
    def origin(self) -> str:
        """The site's address."""
        return self.proxy.origin

    @property
    def link(self) -> str:
        """A fresh link: what `hpcbench portal url` prints, below the site's address."""
        return self.origin + str(self.portal.asked("url")["path"])


@pytest.fixture(scope="module")
def site(home: Path, plans: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A portal, and a proxy of another account before it."""
    port = free_port()
    below = f"/node/{HOST}/{port}"
    options = ("--proxy-user", str(ondemand.ACCOUNT), "--root-path", below)
    portal = Running(home, plans, tmp_path_factory.mktemp("its"), options)
    with contextlib.ExitStack() as stack:
        stack.callback(portal.stop)
        portal.start(port)
        folder = tmp_path_factory.mktemp("ondemand")
        proxy = ondemand.Proxy(folder, HOST, port, free_port())
        stack.callback(proxy.stop)
        yield Site(proxy, f"{below}/", portal)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A page, signed in through the proxy, at the list of experiments; nothing leaves the portal's path."""
    before = len(site.proxy.finished())
    watch = Watch(site.origin, site.below)
    with opened(browser, watch, site.link) as (_, at):
        yield at
    watch.check()
    for status, path in site.proxy.finished()[before:]:
        assert path.startswith(site.below)
        assert status < "400", (status, path)


def test_from_the_link_to_a_sample_with_its_page_and_again_after_a_reload(
    page: Page, site: Site, made: list[Experiment]
) -> None:
    page.get_by_role("grid", name="Experiments").get_by_role("link", name=made[2].id).click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(made[2].resolved.plan.name)
    page.get_by_role("link", name=re.compile("vl-00-3b, pages00: anls")).click()
    page.get_by_role("link", name="All samples").click()
    expect(heading).to_have_text("Samples of pages00-vl-00-3b")
    title = page.get_by_role("region", name="Sample", exact=True).get_by_role("heading", level=2)
    expect(title).to_have_text("d00000-0")
    page.keyboard.press("j")
    expect(title).to_have_text("d00000-1")
    page.reload()
    expect(title).to_have_text("d00000-1")
    picture = page.get_by_role("img", name=re.compile("d00000-1"))
    expect(picture).to_be_visible()
    page.wait_for_function("image => image.naturalWidth > 0", arg=picture.element_handle())
    assert page.url.startswith(site.origin + site.below)


def test_answers_on_disk_move_the_page_through_the_proxy(
    page: Page, site: Site, growing: Experiment
) -> None:
    page.goto(f"{site.origin}{site.below}#/e/{growing.id}")
    expect(page.get_by_text(re.compile("of 720 samples")).first).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    before = answered(page)
    until(lambda: answered(page) > before, 60, "further answers on the page")
    page.close()
    until(lambda: "200" in streams(site), 60, "the end of its stream")


def streams(site: Site) -> list[str]:
    """The status of each stream of events that has ended."""
    return [
        status for status, path in site.proxy.finished()
        if "/api/v1/events" in path and "poll" not in path
    ]  # fmt: skip


def test_a_web_socket_comes_through(page: Page, growing: Experiment) -> None:
    found = page.evaluate(
        """() => new Promise((done, fail) => {
          const place = new URL("api/v1/ws", location.href);
          place.protocol = "wss:";
          place.hash = "";
          const line = new WebSocket(place);
          line.onmessage = ({ data }) => { line.close(); done(JSON.parse(data)); };
          line.onerror = () => fail(new Error("no WebSocket"));
        })"""
    )
    assert (found["kind"], found["experiment"]) == ("experiment", growing.id)


def test_the_session_is_the_portals_alone(page: Page, site: Site) -> None:
    cookies = page.context.cookies()
    assert cookies
    for one in cookies:
        assert one["path"].startswith(site.below), "other apps of the site do not get it"
        assert one["secure"], "the browser came by https"
        assert one["httpOnly"]
        assert one["sameSite"] == "Strict"


def test_a_user_that_the_site_has_signed_in_is_no_user_of_the_portal(
    browser: Browser, site: Site
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.origin + site.below)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    context.close()
