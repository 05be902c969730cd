"""A real Chromium for the tests of pages: what it must not do (errors, requests that leave), and axe-core for access.

Where the system has no Chromium, these tests are skipped, and say how to get one; without axe-core, those that need it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (390, 768, 1400)
SCHEMES = ("light", "dark")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
AXE = Path(__file__).parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
INSIDE = ("data:", "file:", "blob:", "about:", "http://127.0.0.1:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, started once."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium is installed; with Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright (no browser of its own is needed)")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address at a width and in a colour scheme; at the end no page may have had an error or asked outside."""
    contexts, wrong = [], []

    def open_at(address: str, width: int = 1400, scheme: str = "light", **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(INSIDE) else wrong.append(f"asked for {asked.url}"))
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def assert_accessible() -> Callable[[Any], None]:
    """Fails on what axe-core calls serious or critical."""
    if not AXE.exists():
        pytest.skip(f"axe-core is not at {AXE}; `make .venv/axe` fetches it with npm")
    source = AXE.read_text("utf-8")

    def check(page: Any) -> None:
        page.evaluate(source)  # not as an element of the page, whose content policy would refuse it
        found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
        bad = [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]
        assert bad == []

    return check


@pytest.fixture
def assert_fits() -> Callable[[Any], None]:
    """Fails if the page as a whole can be scrolled sideways."""

    def check(page: Any) -> None:
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1]

    return check
