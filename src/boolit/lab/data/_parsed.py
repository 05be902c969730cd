"""What was parsed once, kept as mapped memory: a later start reads no more of it than is used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.lab.data._fetch import fetch_missing
from boolit.lab.data._remote import Remote
from boolit.lab.data._verified import verified, verified_members

Tensors: TypeAlias = dict[str, Tensor]
Parse: TypeAlias = Callable[[Mapping[str, bytes]], Tensors]
Stamp: TypeAlias = dict[str, str]


def tensors(remotes: Sequence[Remote], version: int, parse: Parse) -> Tensors:
    """The tensors ``parse`` makes of the files' contents, by file or member; ``version`` counts the changes of what it makes.

    Missing files are fetched. Contents are verified whenever they are parsed; while size and time of the files stay as they
    were, the tensors of that time are mapped instead. In a folder that cannot be written to, they are parsed at every start.
    """
    fetch_missing(remotes)
    cache, stamp = _cache(remotes, version), _stamp(remotes)
    kept = _mapped(cache, stamp)
    if kept is not None:
        return kept
    parsed = parse(dict(content for remote in remotes for content in _contents(remote)))
    try:
        _keep(parsed, cache, stamp)
    except (OSError, SafetensorError):
        return parsed
    return _mapped(cache, stamp) or parsed


def _contents(remote: Remote) -> Iterable[tuple[str, bytes]]:
    if remote.members:
        return verified_members(remote, remote.kept or remote.path)
    return [(remote.file, b"".join(verified(remote, remote.path)))]


def _cache(remotes: Sequence[Remote], version: int) -> Path:
    digests = (digest for remote in remotes for digest in (remote.sha256, *(member.digest for member in remote.members)))
    named = "\n".join([str(version), *digests])
    return remotes[0].path.parent / "parsed" / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.safetensors"


def _stamp(remotes: Sequence[Remote]) -> Stamp:
    states = {path.name: path.stat() for remote in remotes for path in _files(remote)}
    return {file: f"{state.st_size} {state.st_mtime_ns}" for file, state in states.items()}


def _files(remote: Remote) -> Iterator[Path]:
    if remote.path.is_file():
        return iter([remote.path])
    beside = (remote.path.parent / member.name for member in remote.members)
    return (path for path in beside if path.is_file())


def _mapped(cache: Path, stamp: Stamp) -> Tensors | None:
    try:
        with safe_open(cache, "pt") as file:
            if file.metadata() != stamp:
                return None
        return load_file(cache)
    except (OSError, SafetensorError):
        return None


def _keep(parsed: Tensors, cache: Path, stamp: Stamp) -> None:
    cache.parent.mkdir(exist_ok=True)
    part = cache.with_name(f"{cache.name}.{uuid4().hex}.part")
    try:
        save_file(parsed, part, stamp)
        os.replace(part, cache)
    finally:
        part.unlink(missing_ok=True)
