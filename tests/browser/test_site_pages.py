"""The site in a real browser: a page of every kind at three widths, light and dark; the search, and the switch of colours."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SIZES = [(width, scheme) for width in (390, 768, 1400) for scheme in ("light", "dark")]
BY_AXE = ((390, "light"), (1400, "dark"))  # which takes seconds a page: both layouts and both schemes
CHECKED = (
    "index",
    "choosing",
    "command-line",
    "reference/nn",
    "auto_examples/index",
    "notebooks/compare-on-your-table",
)  # by axe
KINDS = (*CHECKED, "tutorial", "convert", "paper", "speed", "changelog", "reference/functional", "auto_examples/plot_parity")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: a test has no use for it."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The site as a server has it: its search fetches the index."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_pages_of_every_kind(
    open_page: Callable[..., Any],
    assert_accessible: Callable[[Any], None],
    assert_fits: Callable[[Any], None],
    address: str,
    width: int,
    scheme: str,
) -> None:
    for kind in KINDS:
        page = open_page(f"{address}/{kind}.html", width, scheme)
        assert page.locator("html").get_attribute("data-theme") == scheme
        assert_fits(page)
        if kind in CHECKED and (width, scheme) in BY_AXE:
            assert_accessible(page)
        page.close()


def test_no_page_is_wider_than_a_phone(
    open_page: Callable[..., Any], assert_fits: Callable[[Any], None], site: Path, address: str
) -> None:
    page = open_page(f"{address}/index.html", 390)
    for file in sorted(site.rglob("*.html")):
        if "_static" not in file.parts:
            page.goto(f"{address}/{file.relative_to(site).as_posix()}")
            assert_fits(page)


def test_the_search_finds_a_page(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/search.html?q=holm")
    page.locator("#search-results a[href^='statistics.html']").first.wait_for()


def test_a_reader_may_choose_the_colours(open_page: Callable[..., Any], address: str) -> None:
    page = open_page(f"{address}/index.html", 1400, "light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.locator(".theme-switch-button:visible, .theme-switch-container:visible button").first.click()
    page.locator("[data-mode=dark]:visible, .dropdown-item:visible", has_text="Dark").first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate(colour) != light
