"""The site: it builds without a warning, every page can be reached, and it needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

LOADED = {  # what a browser fetches by itself
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
NOT_FETCHED = {"canonical", "next", "prev", "search", "index", "help", "license", "author", "top", "up"}
REMOTE = re.compile(r"^\s*(?:\w+:)?//")
STYLE_FETCHES = re.compile(r"url\(\s*['\"]?\s*(?:https?:)?//[^)]*\)|@import\s+(?:url\()?\s*['\"]?(?:https?:)?//[^;]*")


class Page(HTMLParser):
    """The links of a page, its anchors, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if not NOT_FETCHED.intersection(given.get("rel", "").split()):
            self.loads += [given[name] for name in LOADED.get(tag, ()) if name in given]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {
        file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html")) if "_static" not in file.parts
    }


def targets(file: Path, page: Page) -> Iterator[tuple[str, Path, str]]:
    """The links of a page to files of the site: as written, the file, the anchor."""
    for link in page.links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            yield link, (file.parent / unquote(parts.path)).resolve() if parts.path else file, unquote(parts.fragment)


def test_every_page_is_reached_from_the_home_page(site: Path, pages: dict[Path, Page]) -> None:
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        file = waiting.pop()
        if file in pages and file not in reached:
            reached.add(file)
            waiting += [target for _, target, _ in targets(file, pages[file])]
    made_by_sphinx = {site / name for name in ("genindex.html", "py-modindex.html", "search.html")}
    assert set(pages) - reached <= made_by_sphinx
    assert len(reached) > 30


def test_links_and_anchors_exist(pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for link, target, anchor in targets(file, page):
            lost = anchor and target in pages and anchor not in pages[target].anchors
            if not target.exists() or lost:
                broken.append(f"{file.name}: {link}")
    assert not broken


def test_nothing_comes_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    remote = [f"{file.name}: {address}" for file, page in pages.items() for address in page.loads if REMOTE.match(address)]
    styles = [file.read_text(encoding="utf-8") for file in site.rglob("*.css")]
    styles += re.findall(r"<style[^>]*>(.*?)</style>", "".join(file.read_text(encoding="utf-8") for file in pages), re.DOTALL)
    remote += [found for style in styles for found in STYLE_FETCHES.findall(style)]
    assert not remote


def test_one_heading_of_the_first_level_and_a_language(pages: dict[Path, Page]) -> None:
    for file in pages:
        text = file.read_text(encoding="utf-8")
        assert re.search(r"<html[^>]* lang=\"en\"", text), file.name
        assert len(re.findall(r"<h1[ >]", text)) == 1, file.name


def test_search_finds_words_of_the_pages(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    assert {"tutorial", "gates", "paper", "reference/index"} <= set(index["docnames"])
    assert {"xnor", "relu", "holm"} <= set(index["terms"])


def test_links_to_other_projects_are_real(site: Path) -> None:
    """Types of torch in the reference lead to torch's own pages, though nothing is fetched for that."""
    reference = "".join(file.read_text(encoding="utf-8") for file in (site / "reference").rglob("*.html"))
    assert "https://docs.pytorch.org/docs/stable/" in reference
