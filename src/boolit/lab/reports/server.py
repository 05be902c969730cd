"""The report of a running study, served to this machine's browser and updated as runs are added."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from boolit.errors import UserError
from boolit.lab.reports.report import html_page, read_section
from boolit.lab.results.store import FILE, PROGRESS, Store
from boolit.lab.studies import load
from boolit.lab.studies.planner import SAVED

HOST = "127.0.0.1"
IDLE_SECONDS = 30  # after which a connection without a request is closed
SECURITY = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ReportServer(ThreadingHTTPServer):
    """Serves the page of results folders at ``/``, a tag of their state at ``/state`` and `progress` at ``/progress``."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int = 0) -> None:
        self.folders = list(folders)
        self._lock = threading.Lock()
        self._tag, self._page = "", b""
        for folder in self.folders:
            load(folder)  # report a folder without results now
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(f"--port {port} cannot be used ({error.strerror}); leave it out for a free one") from error

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.server_port}/"

    def progress(self) -> str:
        """Return one line per folder with counts, rate, time left, the last result, and whether a command is running."""
        return "\n".join(map(progress_line, self.folders))

    def state(self) -> str:
        """Return a tag that changes whenever a file that the page depends on is written."""
        files = [folder / name for folder in self.folders for name in (FILE, f"{FILE}-wal", SAVED)]
        return f'"{hashlib.sha256(repr([_describe(path) for path in files]).encode()).hexdigest()[:16]}"'

    def page(self) -> bytes:
        """Return the page of the present state, made once per state."""
        with self._lock:
            tag = self.state()
            if tag != self._tag:
                self._page = html_page([read_section(folder) for folder in self.folders], live=tag).encode()
                self._tag = tag
            return self._page


def progress_line(folder: Path) -> str:
    """Return one line on the progress of the command that trains into a results folder."""
    with Store(folder) as store:
        working, last = store.in_use(), store.last_recorded()
        if working:
            try:
                entries = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                entries = {}
            words = [f"{entries['done']:,} of {entries['total']:,} runs"] if entries else ["Starting"]
            if rate := entries.get("rate"):
                words.append(f"{rate:.3g} runs/s" if rate >= 0.1 else f"{60 * rate:.3g} runs/min")
            if (left := entries.get("seconds_left")) is not None:
                words.append(f"about {timedelta(seconds=round(left))} left")
        else:
            planned = {run.key for run in load(folder).plan.runs}
            done = len(store.finished(planned)) if store.path.is_file() else 0
            words = [f"{done:,} of {len(planned):,} runs"]
    text = ", ".join(words)
    if last is not None:
        text += f". Last result at {last.astimezone():%H:%M:%S on %Y-%m-%d}"
    if not working and done < len(planned):
        text += ". Nobody is working on it; the same command resumes"
    return f"{text}."


def _describe(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        server = cast(ReportServer, self.server)
        # Answer to this address only: another page could reach this server through a host name of its own.
        if self.headers.get("Host") not in (f"{HOST}:{server.server_port}", f"localhost:{server.server_port}"):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"wrong host\n", "text/plain")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, server.page(), "text/html; charset=utf-8")
            elif self.path == "/state":
                tag = server.state()
                same = self.headers.get("If-None-Match") == tag
                self._answer(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK, b"", "text/plain", {"ETag": tag})
            elif self.path == "/progress":
                self._answer(HTTPStatus.OK, server.progress().encode(), "text/plain; charset=utf-8")
            elif self.path == "/favicon.ico":
                self._answer(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
        except UserError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {**SECURITY, "Content-Type": kind, "Content-Length": str(len(content)), **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
