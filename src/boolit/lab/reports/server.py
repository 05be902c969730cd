"""The report of a study that is running, served to this machine's own browser and renewed while runs are added."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from boolit.errors import UserError
from boolit.lab.reports.page import html_page
from boolit.lab.reports.sections import FILE, Section, folder_sections
from boolit.lab.results.database import FILE as STORE
from boolit.lab.results.store import Store

HOST = "127.0.0.1"
SECURITY = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ReportServer(ThreadingHTTPServer):
    """Serves the page of some folders at ``/`` and their state at ``/state``, to nobody but this machine."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int = 0) -> None:
        self.folders = list(folders)
        self._lock = threading.Lock()
        self._files: tuple[object, ...] = ()
        self._state, self._of_page, self._page = "", "", b""
        for folder in self.folders:
            Store(folder, create=False).close()  # a folder that is none is told now
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(f"--port {port} cannot be used ({error.strerror}); leave it out for a free one") from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"

    def state(self) -> str:
        """A tag of the runs that are in the folders, and of what their reports are of.

        A browser asks every few seconds: a store is opened only if one of its files was written since it was read.
        """
        files = tuple(_describe(path) for folder in self.folders for path in _files(folder))
        with self._lock:
            if files != self._files:
                self._state, self._files = self._read_state(), files
            return self._state

    def _read_state(self) -> str:
        digest = hashlib.sha256()
        for folder in self.folders:
            with Store(folder, create=False) as store:
                digest.update(" ".join(sorted(store.finished())).encode())
            info = folder / "report" / FILE
            digest.update(info.read_bytes() if info.is_file() else b"")
        return f'"{digest.hexdigest()[:16]}"'

    def page(self) -> bytes:
        """The page of the present state; it is made once per state."""
        state = self.state()
        with self._lock:
            if state != self._of_page:
                with ExitStack() as stack:
                    sections = folder_sections(self.folders, stack) or [Section("Nothing yet", "run", "", "No run is done.")]
                    self._page, self._of_page = html_page(sections, live=state).encode(), state
            return self._page


def _files(folder: Path) -> tuple[Path, ...]:
    """What a folder's state depends on: the store, its log of what is not in it yet, and what the report is of."""
    return folder / STORE, folder / f"{STORE}-wal", folder / "report" / FILE


def _describe(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast(ReportServer, self.server)
        # A page elsewhere could reach this one through a name of its own that leads here: only this address is answered.
        if self.headers.get("Host") not in (f"{HOST}:{server.server_port}", f"localhost:{server.server_port}"):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"this server answers to its own address only\n", "text/plain")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, server.page(), "text/html; charset=utf-8")
            elif self.path == "/state":
                state = server.state()
                same = self.headers.get("If-None-Match") == state
                self._answer(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK, b"", "text/plain", {"ETag": state})
            elif self.path == "/favicon.ico":
                self._answer(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"there is / and nothing else\n", "text/plain")
        except UserError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815 (http.server's name)

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {**SECURITY, "Content-Type": kind, "Content-Length": str(len(content)), **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing: a line per question would fill the terminal."""
