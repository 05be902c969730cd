"""An empty data folder, and a server to download from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from boolit.lab.datasets import DATASETS, describe, load
from boolit.lab.datasets.download import PublishedDataset, PublishedFile

Publish = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the data folder of the test, which does not exist yet."""
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    yield tmp_path / "data"
    load.cache_clear()
    describe.cache_clear()


@pytest.fixture
def publish(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Write files into a dataset's folder and forget the hashes of the real ones, which a test cannot have."""

    def publish(dataset: str, files: dict[str, bytes], **changes: object) -> None:
        kind = DATASETS.get(dataset)
        assert issubclass(kind, PublishedDataset)
        unhashed = {"hash": "", "content": "", **changes}
        records = [replace(file, members=dict.fromkeys(file.members, ""), **unhashed) for file in kind.files]  # type: ignore[arg-type]
        monkeypatch.setattr(kind, "files", tuple(records))
        for name, content in files.items():
            path = folder / dataset / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    return publish


class Pages(dict[str, bytes]):
    """What a server has, by path, and what it was asked for; a page in ``cut`` breaks off half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.address, self.asked, self.cut = "", list[str](), set[str]()

    def file(self, path: str, hash_: str = "") -> PublishedFile:
        """Return a file of the dataset "sample" at this path."""
        return PublishedFile("sample", path.strip("/"), hash_, (f"{self.address}{path}",))


@pytest.fixture
def pages() -> Iterator[Pages]:
    """Run a server on this machine."""
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
