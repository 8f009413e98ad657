"""Signing in with the link, in a real browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from tests.portal.browsing import Running, Watch, tab


def test_a_link_signs_in_once_and_leaves_no_trace(
    browser: Browser, running: Running, watch: Watch
) -> None:
    link = running.link()
    code = urlsplit(link).fragment.removeprefix("t=")
    context = browser.new_context()
    page = context.new_page()
    watch.follow(page)
    page.goto(link)
    expect(page.get_by_role("navigation").first).to_be_visible()
    assert code not in page.url
    assert code not in str(page.evaluate("navigation.entries().map((one) => one.url)"))
    assert code not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert page.evaluate("document.cookie") == "", "no script can read the session"
    assert code not in running.log
    context.close()

    again = browser.new_context()
    page = again.new_page()
    page.goto(link)
    expect(page.get_by_label("code", exact=False)).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("used already")
    again.close()
    watch.errors.clear()  # the refusal is an error of the console, too


def test_the_place_that_was_asked_for_is_there_after_signing_in(
    browser: Browser, running: Running, watch: Watch
) -> None:
    with tab(browser, running, watch) as (context, page):
        page.goto(f"{watch.origin}/#/cluster")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Cluster")
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Cluster")
        assert context.cookies()[0]["httpOnly"]
        assert context.cookies()[0]["sameSite"] == "Strict"


def test_pages_find_no_server_but_their_own(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
