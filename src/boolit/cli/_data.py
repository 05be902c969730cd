"""``boolit fetch``: download the files of datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from boolit.cli._terminal import output

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="A dataset such as mnist, or weights: the encoder's.")]


def fetch(names: Names) -> None:
    """Download the missing files of datasets, and say what has to be fetched by hand.

    Files are kept in the folder BOOLIT_DATA. A study downloads what it needs by itself.

    Examples:
      boolit fetch mnist
      boolit fetch cifar10 weights
    """
    from boolit.errors import UserError, user_input
    from boolit.lab.datasets import PublishedDataset, download, source_type
    from boolit.lab.datasets.embeddings import WEIGHTS

    files = {}
    with user_input():
        for name in names:
            kind = None if name == WEIGHTS.dataset else source_type(name)
            files[name] = (WEIGHTS,) if kind is None else kind.files if issubclass(kind, PublishedDataset) else ()
    missing = [file for needed in files.values() for file in needed if file.here is None]
    by_hand = [file for file in missing if not file.urls]
    for file in by_hand:
        output().print(f"{file.name} of {file.dataset} has to be fetched by hand: {file.fix}", markup=False, soft_wrap=True)
    for name, needed in files.items():
        if not needed:
            output().print(f"{name} needs no published files", markup=False)
        for file in needed:
            if file not in by_hand:
                state = "downloaded" if file in missing else "already here"
                output().print(f"{download.fetch(file)}: {state}", markup=False, soft_wrap=True)
    if by_hand:
        raise UserError(f"{', '.join(file.name for file in by_hand)} cannot be downloaded; fetch by hand what is listed above")
