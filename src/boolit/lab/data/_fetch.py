"""Downloads, through pooch: a file is in its place only once it is whole and holds what was published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from boolit.lab.data._bars import DownloadBars, FileBar
from boolit.lab.data._remote import Remote
from boolit.lab.data._verified import check
from boolit.lab.errors import UserError

CHUNK = 2**16


def fetch_missing(remotes: Sequence[Remote]) -> None:
    """Downloads the files that are not there, nor unpacked."""
    missing = [remote for remote in remotes if remote.kept is None]
    if missing:
        with DownloadBars() as bars:
            for remote in missing:
                fetch(remote, bars.file(remote.file))


def fetch(remote: Remote, bar: FileBar | None = None) -> None:
    """Downloads a file from the first of its addresses that has it, over a copy that is there."""
    if not remote.urls:
        raise UserError(f"{remote.file} of {remote.dataset} is not here, and no longer published; {remote.fix}")
    failures = []
    for url in remote.urls:
        try:
            return _download(remote, url, bar)
        except (OSError, UserError) as error:  # what requests raises is an OSError
            failures.append(f"{urlsplit(url).hostname}: {_reason(error)}")
    raise UserError(
        f"{remote.file} of {remote.dataset} could not be downloaded to {remote.path.parent} ({'; '.join(failures)}); "
        f"with a network, {remote.fix}"
    )


def _download(remote: Remote, url: str, bar: FileBar | None) -> None:
    # pooch.retrieve would compare a hash of the download itself, which is another one at every mirror that packed the file
    # anew. So pooch's downloader writes aside, the content is checked there, and only then does the file get its name.
    from pooch import HTTPDownloader

    # A server may else send an archive as the compressed form of its content, and requests would unpack it.
    download = HTTPDownloader(progressbar=bar or False, chunk_size=CHUNK, headers={"Accept-Encoding": "identity"})
    part = _beside(remote.path)
    try:
        with part.open("xb") as file:
            download(url, file, None)
        check(remote, part)
        os.replace(part, remote.path)
    finally:
        part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name nobody else writes to, however many processes fetch the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f"{path.name}.{uuid4().hex}.part")


def _reason(error: Exception) -> str:
    if isinstance(error, UserError):
        return "what it sent is not the published file"
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    return getattr(error, "strerror", None) or type(error).__name__
