"""Pictures are decoded by worker processes, few at a time: memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TypeAlias

from boolit.lab.data._decoding import Pixels, decoded_picture
from boolit.lab.processes import in_processes, processors

Encoded: TypeAlias = tuple[int, str, bytes]  # row, name and content of a picture
Decoded: TypeAlias = tuple[int, Pixels]
TOGETHER = 16  # pictures a worker gets at once
WORTH_A_PROCESS = 400  # pictures: starting a process, which imports torch, takes about as long as decoding them


def decode_all(pictures: Iterable[Encoded], count: int, side: int) -> Iterator[Decoded]:
    """Decodes about ``count`` pictures, in the order they come."""
    workers = min(processors(), count // WORTH_A_PROCESS)
    work = partial(decode_portion, side=side)
    return chain.from_iterable(in_processes(work, _portions(pictures), workers, "decodes pictures"))


def decode_portion(portion: list[Encoded], side: int) -> list[Decoded]:
    """Decodes some pictures in this process."""
    return [(row, decoded_picture(content, name, side)) for row, name, content in portion]


def _portions(pictures: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    remaining = iter(pictures)
    return iter(lambda: list(islice(remaining, TOGETHER)), [])
