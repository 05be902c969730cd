"""Problems as files: a folder for each configuration, an .npz file for each problem, in the format of I-RAVEN.

Written under another name and then renamed, so that a file is there whole or not at all, whenever the process is killed.
"""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from boolit.lab.errors import UserError
from boolit.lab.files import read_array, regular_file
from boolit.lab.folders import data_folder
from boolit.lab.processes import in_processes, processors
from boolit.lab.raven._shapes import Bytes
from boolit.lab.raven.annotations import meta_matrix, meta_structure, structure
from boolit.lab.raven.configurations import configuration_named
from boolit.lab.raven.drawing import SIDE, pictures
from boolit.lab.raven.panels import Problem
from boolit.lab.raven.problems import problem
from boolit.lab.raven.progress import Advance, silent
from boolit.lab.raven.solver import solve

VERSION = 1  # counts the changes of what is made of a seed
SplitName = Literal["train", "val", "test"]
PANELS, CANDIDATES = 16, 8
# Of ten problems in succession, the first six are to train on.
SPLIT_OF_REMAINDER: tuple[SplitName, ...] = ("train",) * 6 + ("val",) * 2 + ("test",) * 2
NAME = re.compile(r"RAVEN_(\d+)_(train|val|test)\.npz")
LEVEL = 1  # of compression: 1.6 ms to 22 kB of 410; level 6, which numpy has, takes 3.9 ms to 18
TOGETHER = 25  # problems a process gets at once
WORTH_A_PROCESS = 300  # problems: starting a process, which imports torch, takes about as long as making them
LARGEST_ARRAY = 2**24  # bytes; the pictures of a problem have 409,600
ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a killed process


class Portion(NamedTuple):
    """Some problems of a configuration that one process makes."""

    folder: Path
    configuration: str
    seed: int
    indices: tuple[int, ...]


def split_of(index: int) -> SplitName:
    """The split a problem belongs to by its number.

    Example:
        >>> [split_of(index) for index in (0, 15, 6, 8)]
        ['train', 'train', 'val', 'test']
    """
    return SPLIT_OF_REMAINDER[index % len(SPLIT_OF_REMAINDER)]


def file_name(index: int) -> str:
    """The name of a problem's file.

    Example:
        >>> file_name(17)
        'RAVEN_17_val.npz'
    """
    return f"RAVEN_{index}_{split_of(index)}.npz"


def home(seed: int) -> Path:
    """Where the problems of a seed are; those that another version of the generator made are elsewhere."""
    return data_folder() / "iraven" / f"{seed}-v{VERSION}"


def generate(folder: Path, configurations: Sequence[str], problems: int, seed: int, advance: Advance = silent) -> int:
    """Makes the problems 0 … ``problems`` − 1 of every configuration that are not in the folder yet; returns their number.

    All cores are used, and what is made depends on configuration, seed and number only. Every problem is solved: an error names
    the first one that has another answer than its target, or several.
    """
    portions = [part for name in configurations for part in _portions(folder, name, seed, missing(folder, name, problems))]
    count = sum(len(portion.indices) for portion in portions)
    for made in in_processes(make, portions, min(processors(), count // WORTH_A_PROCESS), "makes problems"):
        advance(made)
    return count


def missing(folder: Path, configuration: str, problems: int) -> list[int]:
    """The numbers, below ``problems``, of those without a file."""
    own = folder / configuration_named(configuration).name
    here = set(os.listdir(own)) if own.is_dir() else set()
    return [index for index in range(problems) if file_name(index) not in here]


def make(portion: Portion) -> int:
    """Makes, solves, draws and writes some problems; returns their number."""
    folder = portion.folder / portion.configuration
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index in portion.indices:
            _write(folder / file_name(index), _contents(_solved(portion.configuration, portion.seed, index)))
    except OSError as error:
        raise UserError(
            f"problems cannot be written to {folder} ({error.strerror or error}); make room there, or choose another folder"
        ) from None
    return len(portion.indices)


def read(path: Path) -> tuple[Bytes, int]:
    """The pictures and the target in a problem's file.

    Shape: ``(16, 160, 160)``.
    """
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            image, target = (_array(archive, key) for key in ("image", "target"))
        if image.shape != (PANELS, SIDE, SIDE) or image.dtype != np.uint8:
            raise ValueError(f"its images are {image.dtype} of shape {image.shape}, not uint8 of {(PANELS, SIDE, SIDE)}")
        if target.size != 1 or not 0 <= int(target.item()) < CANDIDATES:
            raise ValueError(f"its target is {target.tolist()}, not one of 0 to {CANDIDATES - 1}")
    except UserError:
        raise
    except Exception as error:  # a damaged archive may fail with any exception
        raise UserError(f"{path} is no problem of I-RAVEN ({error}); delete it, or put a whole one there") from None
    return image, int(target.item())


def _array(archive: zipfile.ZipFile, key: str) -> npt.NDArray[Any]:
    with archive.open(f"{key}.npy") as member:
        return read_array(member, LARGEST_ARRAY)


def _portions(folder: Path, configuration: str, seed: int, indices: list[int]) -> list[Portion]:
    _sweep(folder / configuration)
    return [
        Portion(folder, configuration, seed, tuple(indices[first : first + TOGETHER]))
        for first in range(0, len(indices), TOGETHER)
    ]


def _solved(configuration: str, seed: int, index: int) -> Problem:
    made = problem(configuration, seed, index)
    answers = list(solve(made))
    if answers != [made.target]:
        raise RuntimeError(
            f"problem {index} of {configuration} with seed {seed} is solved by the candidates {answers}, not by its target "
            f"{made.target} alone; please report it"
        )
    return made


def _contents(made: Problem) -> dict[str, npt.NDArray[Any]]:
    configuration, matrix = configuration_named(made.configuration), meta_matrix(made.rules)
    return {
        "image": pictures(made),
        "target": np.array(made.target),
        "predict": np.array(made.target),  # the solver's only answer, as `_solved` made sure
        "meta_matrix": matrix,
        "meta_target": np.bitwise_or.reduce(matrix),
        "structure": np.array(structure(configuration)),
        "meta_structure": meta_structure(configuration),
    }


def _write(path: Path, contents: dict[str, npt.NDArray[Any]]) -> None:
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            for key, array in contents.items():
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Deletes what killed processes left unfinished; younger files may be another process's."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > ABANDONED:
            part.unlink(missing_ok=True)
