"""Published files: downloads with pooch, verification by hash, and the datasets that are read from them.

A download is verified by the hash of the published file. A file that the user placed by hand may be packed differently: it is
verified by the hash of its content where one is known, and otherwise read by the same reader with a note. Archives are read in
place and never unpacked, so no path in one can leave its folder.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import sys
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, ClassVar, cast
from urllib.parse import urlsplit

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import data_folder
from boolit.lab.common.progress import error_stream
from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Dataset, Description, Encode, Source, Split, Subset, Task, Validation, split_sizes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

logger = logging.getLogger(__name__)
DAMAGE = (OSError, EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class PublishedFile:
    """A file of a published dataset."""

    dataset: str  # name of its folder in the data folder
    name: str
    hash: str = ""  # of the published file as pooch writes it (``md5:…``, or a SHA-256), if one is known
    urls: Sequence[str] = ()  # its address and mirrors; none if it must be fetched by hand
    content: str = ""  # SHA-256 of the decompressed content of a ``.gz`` file
    unpacked: str = ""  # folder beside it that may take its place
    members: Mapping[str, str] = field(default_factory=dict)  # files to read from an archive, with their ``md5:…`` if known
    inner: str = ""  # the tarball within a zip file
    folders: Sequence[str] = ()  # further folders that may hold the file, relative to the data folder
    source: str = ""  # where to get a file without address

    @property
    def path(self) -> Path:
        """The path of the file, whether or not it exists."""
        return data_folder() / self.dataset / self.name

    @property
    def here(self) -> Path | None:
        """The path of the file or of the folder in its place, if one exists."""
        for folder in (self.dataset, *self.folders):
            path = data_folder() / folder / self.name
            if path.is_file():
                return path
            if self.unpacked and path.with_name(self.unpacked).is_dir():
                return path.with_name(self.unpacked)
        return None

    @property
    def fix(self) -> str:
        """What to do if the file is missing or damaged."""
        folder = f" or the folder {self.unpacked}/ that it unpacks to" if self.unpacked and self.unpacked != self.name else ""
        by_hand = f"put {self.name}{folder} into {self.path.parent}"
        by_hand += f" (from {self.source})" if self.source else ""
        return f"run `boolit fetch {self.dataset}`, or {by_hand}" if self.urls else by_hand

    def error(self, path: Path, fault: str) -> UserError:
        """Return the error for a damaged copy."""
        return UserError(f"{path} {fault}; {self.fix}")


def published_files(dataset: str) -> tuple[PublishedFile, ...]:
    """Return the files of a dataset that published.toml lists."""
    tables = tomllib.loads(Path(__file__).with_name("published.toml").read_text("utf-8"))
    return tuple(PublishedFile(dataset, **table) for table in tables[dataset])


def fetch(published: PublishedFile) -> Path:
    """Return the path of a file, or of the folder in its place; download it if it is missing."""
    import pooch

    if published.here is not None:
        return published.here
    if not published.urls:
        raise UserError(f"{published.name} of {published.dataset} has to be fetched by hand; {published.fix}")
    pooch.get_logger().setLevel("WARNING")
    # Without this header a server may send a .gz file as compressed text, which requests would decompress.
    downloader = pooch.HTTPDownloader(progressbar=error_stream().is_terminal, headers={"Accept-Encoding": "identity"})
    failures = []
    for url in published.urls:
        try:
            pooch.retrieve(url, published.hash or None, published.name, published.path.parent, downloader=downloader)
            return published.path
        except (OSError, ValueError) as error:  # pooch raises ValueError for another hash, requests an OSError
            failures.append(f"{urlsplit(url).hostname}: {' '.join(str(error).split())}")
    reasons = "; ".join(failures)
    raise UserError(f"{published.name} of {published.dataset} could not be downloaded ({reasons}); {published.fix}")


def read_contents(files: Iterable[PublishedFile]) -> dict[str, bytes]:
    """Return the contents of files, or of the ``members`` of archives, by name; a ``.gz`` file is decompressed.

    Missing files are downloaded. A content with another hash than the published one is an error.
    """
    contents = {}
    for published in files:
        path, missing = fetch(published), {**published.members} or {published.name: published.content or published.hash}
        for name, read in archive_files(published) if published.members else [(published.name, path.read_bytes)]:
            if name not in missing:
                continue
            try:
                contents[name] = gzip.decompress(read()) if name.endswith(".gz") else read()
            except DAMAGE as error:
                raise published.error(path, f"cannot be read ({error})") from None
            algorithm, _, digest = missing.pop(name).rpartition(":")
            if digest and algorithm != "arrays" and hashlib.new(algorithm or "sha256", contents[name]).hexdigest() != digest:
                raise published.error(path, f"is not as published: the content of {name} has another hash")
            if not missing:
                break  # STL-10 has 2 GB of other images behind these
        for name in missing:
            raise published.error(path, f"lacks {name}")
    return contents


def archive_files(published: PublishedFile) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name and a reader of every file in an archive or in the folder in its place.

    Names in a folder begin with the folder's own, as in a tarball of it. A reader is valid until the next file is taken.
    """
    path = fetch(published)
    if path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.is_file():
                yield f"{path.name}/{inner.relative_to(path).as_posix()}", inner.read_bytes
        return
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(path.open("rb"))
            if published.inner:
                file = stack.enter_context(stack.enter_context(zipfile.ZipFile(file)).open(published.inner))
            archive = stack.enter_context(tarfile.open(fileobj=file, mode="r|*"))
            for member in archive:
                if member.isfile():
                    content = cast(IO[bytes], archive.extractfile(member))
                    yield member.name.removeprefix("./"), content.read
    except DAMAGE as error:
        raise published.error(path, f"is not a whole archive ({error})") from None


def note_unverified(published: PublishedFile) -> None:
    """Log a note if a copy on disk is not the published archive or cannot be compared with it."""
    import pooch

    path = fetch(published)
    if path.is_dir() or not published.hash:
        logger.warning("%s has no published hash; it is read as it is", path)
    elif not pooch.hashes.hash_matches(str(path), published.hash):
        logger.warning("%s is not the published archive (its hash differs); it is read as it is", path)


class PublishedDataset(Source, ABC):
    """A dataset in published files; ``samples`` counts the samples by split with the default options."""

    files: ClassVar[tuple[PublishedFile, ...]]
    task: ClassVar[Task] = "classes"
    inputs: ClassVar[tuple[int, ...]]
    classes: ClassVar[int] = 10  # or outputs of a network for other tasks
    samples: ClassVar[Mapping[str, int]]
    extra_metrics: ClassVar[tuple[str, ...]] = ()

    def describe(self) -> Description:
        return Description(self.inputs, self.classes, self.task, self.samples, self.extra_metrics)


class ArrayDataset(PublishedDataset, ABC):
    """A dataset with a training and a test part, each of which is one array.

    ``validation`` is the share of the training samples to hold out: the same of every class, or the last ones if ``ordered``.
    ``subset`` is the share of the others to train on, the first ones, and ``tested`` the share of the test samples to use.
    """

    validation: Validation = 0.0
    subset: Subset = 1.0
    tested: Subset = 1.0

    ordered: ClassVar[bool] = False

    @abstractmethod
    def _parse(self, contents: Mapping[str, bytes]) -> dict[str, Split]:
        """Return all samples of the splits ``train`` and ``test``, given the contents of the files."""

    @abstractmethod
    def _encoding(self, train: Tensor) -> Encode:
        """Return the encoding of samples, given those to train on."""

    def describe(self) -> Description:
        samples = {**self.samples, "test": round(self.tested * self.samples["test"])}
        return replace(super().describe(), samples=split_sizes(samples, self.validation, self.subset))

    def load(self) -> Dataset:
        splits = self._parse(read_contents(self.files))
        test = slice(round(self.tested * len(splits["test"])))
        splits["test"] = Split(splits["test"].x[test], splits["test"].y[test])
        x, y = splits["train"].x, splits["train"].y
        sizes = split_sizes({"train": len(x)}, self.validation, self.subset)
        valid = sizes.get("valid", 0)  # the first rows of the order
        order = torch.arange(len(x)).roll(valid) if self.ordered else stratified_order(y, 0, self.name, "validation")
        parts = {"train": order[valid:], "valid": order[:valid]}
        rows = {name: parts[name].sort().values[:size] for name, size in sizes.items()}
        splits |= {name: Split(x[part], y[part]) for name, part in rows.items()}
        return Dataset(splits, self.task, self.classes, encode=self._encoding(splits["train"].x))
