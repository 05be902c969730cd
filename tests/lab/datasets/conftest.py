"""A data folder of the test's own, files to publish in it, and a server to publish them on."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from boolit.lab.datasets.download.published import PublishedFile

Publish = Callable[..., PublishedFile]
NOWHERE = "http://127.0.0.1:9/file"  # the port of the discard service, where nobody answers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder; nothing is in it."""
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def publish(folder: Path) -> Publish:
    """A record of some content, and a file with it in the data folder unless ``here`` is false."""

    def publish(
        dataset: str, file: str, content: bytes, urls: tuple[str, ...] = (NOWHERE,), here: bool = True
    ) -> PublishedFile:
        published = PublishedFile(dataset, file, urls, hashlib.sha256(content).hexdigest(), len(content))
        if here:
            published.path.parent.mkdir(parents=True, exist_ok=True)
            published.path.write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
        assert published.path.is_relative_to(folder)
        return published

    return publish


class Pages(dict[str, bytes]):
    """What a server has, by path, where it is, and what it was asked for; a page in ``cut`` breaks off half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.address, self.asked, self.cut = "", list[str](), set[str]()

    def url(self, path: str) -> str:
        return f"{self.address}{path}"


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A server on this machine."""
    pages = Pages()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages.asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write((body or b"")[: len(body or b"") // 2 if self.path in pages.cut else None])

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        pages.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield pages
        server.shutdown()
        thread.join()
