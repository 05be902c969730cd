"""Problems as files: a folder for each configuration, an .npz file for each problem, in the format of I-RAVEN.

Written under another name and then renamed, so that a file is there whole or not at all, whenever the process is killed.
"""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boolit.lab.common.errors import UserError
from boolit.lab.common.files import atomic_write, data_folder, read_array, regular_file
from boolit.lab.common.parallel import map_in_processes, processors
from boolit.lab.common.progress import Advance
from boolit.lab.datasets.raven.configurations import Component, Configuration, configuration_named
from boolit.lab.datasets.raven.drawing import SIDE, Bytes, pictures
from boolit.lab.datasets.raven.panels import Problem
from boolit.lab.datasets.raven.problems import problem
from boolit.lab.datasets.raven.rules import Rule
from boolit.lab.datasets.raven.solver import solve

# What a problem's file says besides pictures and answer: its rules, and the tree of its layout, in RAVEN's notation.

MOST_RULES = 8  # four a component
META = ("Constant", "Progression", "Arithmetic", "Distribute_Three", "Number", "Position", "Type", "Size", "Color")
STRUCTURES = ("Singleton", "Left_Right", "Up_Down", "Out_In")
COMPONENTS = ("Left", "Right", "Up", "Down", "Out", "In", "Grid")
LAYOUTS = ("Center_Single", "Distribute_Four", "Distribute_Nine")
PLACED_LAYOUTS = (
    *(f"{part}_Center_Single" for part in ("Left", "Right", "Up", "Down", "Out", "In")),
    "In_Distribute_Four",
)
META_STRUCTURE = (*STRUCTURES, *COMPONENTS, *LAYOUTS, *PLACED_LAYOUTS)
LAYOUT_OF_SLOTS = {1: "Center_Single", 4: "Distribute_Four", 9: "Distribute_Nine"}
END = "/"  # of a node and all below it


def meta_matrix(rules: tuple[tuple[Rule, ...], ...]) -> Bytes:
    """A row for each rule, those of the first component first, with ones in the columns of its name and its attributes.

    Shape: ``(8, 9)``; with one component the last four rows are zero.

    Example:
        >>> meta_matrix(((Rule("Constant", "Number/Position"), Rule("Progression", "Size", -1)),))[:2].tolist()
        [[1, 0, 0, 0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 1, 0]]
    """
    matrix = np.zeros((MOST_RULES, len(META)), np.uint8)
    for row, rule in enumerate(rule for group in rules for rule in group):
        for word in (rule.name, *rule.attribute.split("/")):
            matrix[row, META.index(word)] = 1
    return matrix


def structure(configuration: Configuration) -> list[str]:
    """The tree of scene, structure, components and layouts, each node before those below it and ended by a ``/``.

    Example:
        >>> from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
        >>> " ".join(structure(CONFIGURATIONS["distribute_nine"]))
        'Scene Singleton Grid Distribute_Nine / / / /'
    """
    parts = configuration.components
    kind = "_".join(part.name for part in parts) if len(parts) > 1 else "Singleton"
    return ["Scene", kind, *(word for part in parts for word in _component(part, placed=len(parts) > 1)), END, END]


def meta_structure(configuration: Configuration) -> Bytes:
    """Which of the 21 names of structures, components and layouts occur in the tree.

    Shape: ``(21,)``.
    """
    words = structure(configuration)
    return np.array([name in words for name in META_STRUCTURE], np.uint8)


def _component(part: Component, placed: bool) -> Iterator[str]:
    layout = LAYOUT_OF_SLOTS[len(part.slots)]
    yield from (part.name, f"{part.name}_{layout}" if placed else layout, END, END)


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


def generate(folder: Path, configurations: Sequence[str], problems: int, seed: int, advance: Advance = lambda _: None) -> int:
    """Makes the problems 0 … ``problems`` − 1 of every configuration that are not in the folder yet; returns their number.

    All cores are used, and what is made depends on configuration, seed and number only. Every problem is solved: an error names
    the first one that has another answer than its target, or several.
    """
    portions = [part for name in configurations for part in _portions(folder, name, seed, missing(folder, name, problems))]
    count = sum(len(portion.indices) for portion in portions)
    for made in map_in_processes(make, portions, min(processors(), count // WORTH_A_PROCESS), "makes problems"):
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
    with (
        atomic_write(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive,
    ):
        for key, array in contents.items():
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _sweep(folder: Path) -> None:
    """Deletes what killed processes left unfinished; younger files may be another process's."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > ABANDONED:
            part.unlink(missing_ok=True)
