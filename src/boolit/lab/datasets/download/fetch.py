"""Downloads through pooch, with progress; and what was parsed once, kept as mapped memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key
from boolit.lab.common.progress import byte_progress
from boolit.lab.datasets.download.published import PublishedFile, read_verified, read_verified_members, verify_file


class FileBar:
    """The bar of one file, on a terminal only. pooch sets ``total`` and calls the rest, as it would with tqdm's bars."""

    def __init__(self, bars: Progress, file: str) -> None:
        self._bars, self._task = bars, bars.add_task(file, total=None)

    @property
    def total(self) -> float | None:
        """The bytes to come; unknown until the server says."""
        return self._bars.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._bars.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """So many bytes more have come."""
        self._bars.advance(self._task, size)

    def reset(self) -> None:
        """Begins anew; pooch does so before it fills the bar."""
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        """The file is complete."""


CHUNK = 2**16


def fetch_missing(files: Sequence[PublishedFile]) -> None:
    """Downloads the files that are not there, nor unpacked."""
    missing = [published for published in files if published.kept is None]
    if missing:
        with byte_progress() as bars:
            for published in missing:
                fetch(published, FileBar(bars, published.name))


def fetch(published: PublishedFile, bar: FileBar | None = None) -> None:
    """Downloads a file from the first of its addresses that has it, over a copy that is there."""
    if not published.urls:
        raise UserError(f"{published.name} of {published.dataset} is not here, and no longer published; {published.fix}")
    failures = []
    for url in published.urls:
        try:
            return _download(published, url, bar)
        except (OSError, UserError) as error:  # what requests raises is an OSError
            failures.append(f"{urlsplit(url).hostname}: {_reason(error)}")
    raise UserError(
        f"{published.name} of {published.dataset} could not be downloaded to {published.path.parent} ({'; '.join(failures)}); "
        f"with a network, {published.fix}"
    )


def _download(published: PublishedFile, url: str, bar: FileBar | None) -> None:
    # pooch.retrieve would compare a hash of the download itself, which is another one at every mirror that packed the file
    # anew. So pooch's downloader writes aside, the content is checked there, and only then does the file get its name.
    from pooch import HTTPDownloader

    # A server may else send an archive as the compressed form of its content, and requests would unpack it.
    download = HTTPDownloader(progressbar=bar or False, chunk_size=CHUNK, headers={"Accept-Encoding": "identity"})
    published.path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(published.path) as part:
        with part.open("xb") as file:
            download(url, file, None)
        verify_file(published, part)


def _reason(error: Exception) -> str:
    if isinstance(error, UserError):
        return "what it sent is not the published file"
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    return getattr(error, "strerror", None) or type(error).__name__


Tensors: TypeAlias = dict[str, Tensor]
Parse: TypeAlias = Callable[[Mapping[str, bytes]], Tensors]
Stamp: TypeAlias = dict[str, str]


def load_tensors(files: Sequence[PublishedFile], version: int, parse: Parse) -> Tensors:
    """The tensors ``parse`` makes of the files' contents, by file or member; ``version`` counts the changes of what it makes.

    Missing files are fetched. Contents are verified whenever they are parsed; while size and time of the files stay as they
    were, the tensors of that time are mapped instead. In a folder that cannot be written to, they are parsed at every start.
    """
    fetch_missing(files)
    cache, stamp = _cache(files, version), _stamp(files)
    kept = _map(cache, stamp)
    if kept is not None:
        return kept
    parsed = parse(dict(content for published in files for content in _contents(published)))
    try:
        cache.parent.mkdir(exist_ok=True)
        with atomic_write(cache) as part:
            save_file(parsed, part, stamp)
    except (OSError, SafetensorError):
        return parsed
    return _map(cache, stamp) or parsed


def _contents(published: PublishedFile) -> Iterable[tuple[str, bytes]]:
    if published.members:
        return read_verified_members(published, published.kept or published.path)
    return [(published.name, read_verified(published, published.path))]


def _cache(files: Sequence[PublishedFile], version: int) -> Path:
    digests = (digest for published in files for digest in (published.sha256, *published.members.values()))
    return files[0].path.parent / "parsed" / f"{cache_key(version, *digests)}.safetensors"


def _stamp(files: Sequence[PublishedFile]) -> Stamp:
    states = {path.name: path.stat() for published in files for path in _files(published)}
    return {file: f"{state.st_size} {state.st_mtime_ns}" for file, state in states.items()}


def _files(published: PublishedFile) -> Iterator[Path]:
    if published.path.is_file():
        return iter([published.path])
    beside = (published.path.parent / name for name in published.members)
    return (path for path in beside if path.is_file())


def _map(cache: Path, stamp: Stamp) -> Tensors | None:
    try:
        with safe_open(cache, "pt") as file:
            if file.metadata() != stamp:
                return None
        return load_file(cache)
    except (OSError, SafetensorError):
        return None
