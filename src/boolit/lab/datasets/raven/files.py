"""Problems as files: one folder per configuration, one .npz file per problem, in the format of I-RAVEN.

Files are written under another name and then renamed, so that a file exists whole or not at all, even if the process is killed.
"""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, data_folder, read_array, regular_file
from boolit.lab.common.parallel import map_in_processes, processors
from boolit.lab.common.progress import Advance
from boolit.lab.datasets.raven.configurations import Configuration, configuration_named
from boolit.lab.datasets.raven.drawing import SIDE, Bytes, draw_problem
from boolit.lab.datasets.raven.matrix import Problem
from boolit.lab.datasets.raven.problems import make_problem
from boolit.lab.datasets.raven.rules import Rule
from boolit.lab.datasets.raven.solver import solve

MAX_RULES = 8  # four per component
META = ("Constant", "Progression", "Arithmetic", "Distribute_Three", "Number", "Position", "Type", "Size", "Color")
STRUCTURES = ("Singleton", "Left_Right", "Up_Down", "Out_In")
COMPONENTS = ("Left", "Right", "Up", "Down", "Out", "In", "Grid")
LAYOUTS = ("Center_Single", "Distribute_Four", "Distribute_Nine")
PLACED_LAYOUTS = (*(f"{part}_Center_Single" for part in COMPONENTS[:-1]), "In_Distribute_Four")
META_STRUCTURE = (*STRUCTURES, *COMPONENTS, *LAYOUTS, *PLACED_LAYOUTS)
LAYOUT_OF_SLOTS = {1: "Center_Single", 4: "Distribute_Four", 9: "Distribute_Nine"}
END = "/"  # of a node and all below it

VERSION = 1  # of what a seed generates
SplitName = Literal["train", "val", "test"]
PANELS, CANDIDATES = 16, 8
# Of ten problems in succession, the first six are to train on.
SPLIT_OF_REMAINDER: tuple[SplitName, ...] = ("train",) * 6 + ("val",) * 2 + ("test",) * 2
NAME = re.compile(r"RAVEN_(\d+)_(train|val|test)\.npz")
LEVEL = 1  # of compression: 1.6 ms to 22 kB of 410; level 6, numpy's, takes 3.9 ms to 18
TOGETHER = 25  # problems per batch
WORTH_A_PROCESS = 300  # problems: starting a process, which imports torch, takes about as long as making them
LARGEST_ARRAY = 2**24  # bytes; the images of a problem have 409,600
ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a killed process


def meta_matrix(rules: tuple[tuple[Rule, ...], ...]) -> Bytes:
    """One row per rule, those of the first component first, with ones in the columns of its name and its attributes.

    Shape: ``(8, 9)``; with one component the last four rows are zero.

    Example:
        >>> meta_matrix(((Rule("Constant", "Number/Position"), Rule("Progression", "Size", -1)),))[:2].tolist()
        [[1, 0, 0, 0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 1, 0]]
    """
    matrix = np.zeros((MAX_RULES, len(META)), np.uint8)
    for row, rule in enumerate(rule for group in rules for rule in group):
        for word in (rule.name, *rule.attribute.split("/")):
            matrix[row, META.index(word)] = 1
    return matrix


def structure(configuration: Configuration) -> list[str]:
    """The tree of scene, structure, components and layouts in preorder; a ``/`` ends each node.

    Example:
        >>> from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
        >>> " ".join(structure(CONFIGURATIONS["distribute_nine"]))
        'Scene Singleton Grid Distribute_Nine / / / /'
    """
    parts = configuration.components
    words = ["Scene", "_".join(part.name for part in parts) if len(parts) > 1 else "Singleton"]
    for part in parts:
        layout = LAYOUT_OF_SLOTS[len(part.slots)]
        words += [part.name, f"{part.name}_{layout}" if len(parts) > 1 else layout, END, END]
    return [*words, END, END]


def meta_structure(configuration: Configuration) -> Bytes:
    """Which of the 21 names of structures, components and layouts occur in the tree.

    Shape: ``(21,)``.
    """
    words = structure(configuration)
    return np.array([name in words for name in META_STRUCTURE], np.uint8)


class ProblemBatch(NamedTuple):
    """Some problems of a configuration, to be made by one process."""

    folder: Path
    configuration: str
    seed: int
    indices: tuple[int, ...]


def split_of(index: int) -> SplitName:
    """The split of the problem with a number.

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


def problem_folder(seed: int) -> Path:
    """The folder of the problems of a seed; each version of the generator has its own."""
    return data_folder() / "iraven" / f"{seed}-v{VERSION}"


def generate(folder: Path, configurations: Sequence[str], problems: int, seed: int, advance: Advance = lambda _: None) -> int:
    """Makes the problems 0 … ``problems`` − 1 of every configuration that are not in the folder yet; returns their number.

    All cores are used; a problem depends on configuration, seed and number only. Every problem is solved: an error names the
    first one that has another answer than its target, or several.
    """
    batches = []
    for name in configurations:
        indices = missing_problems(folder, name, problems)
        _delete_unfinished(folder / name)
        parts = (tuple(indices[first : first + TOGETHER]) for first in range(0, len(indices), TOGETHER))
        batches += [ProblemBatch(folder, name, seed, part) for part in parts]
    count = sum(len(batch.indices) for batch in batches)
    for made in map_in_processes(write_problems, batches, min(processors(), count // WORTH_A_PROCESS), "makes problems"):
        advance(made)
    return count


def missing_problems(folder: Path, configuration: str, problems: int) -> list[int]:
    """The numbers below ``problems`` of those without a file."""
    own = folder / configuration_named(configuration).name
    here = set(os.listdir(own)) if own.is_dir() else set()
    return [index for index in range(problems) if file_name(index) not in here]


def write_problems(batch: ProblemBatch) -> int:
    """Makes, solves, draws and writes some problems; returns their number."""
    folder = batch.folder / batch.configuration
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index in batch.indices:
            problem = make_problem(batch.configuration, batch.seed, index)
            if (answers := list(solve(problem))) != [problem.target]:
                raise RuntimeError(
                    f"problem {index} of {batch.configuration} with seed {batch.seed} is solved by the candidates {answers}, "
                    f"not by its target {problem.target} alone; please report it"
                )
            _write(folder / file_name(index), _contents(problem))
    except OSError as error:
        raise UserError(
            f"problems cannot be written to {folder} ({error.strerror or error}); make room there, or choose another folder"
        ) from None
    return len(batch.indices)


def read_problem(path: Path) -> tuple[Bytes, int]:
    """The images and the target in a problem's file.

    Shape: ``(16, 160, 160)``.
    """
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            image, target = (_read_array(archive, key) for key in ("image", "target"))
        if image.shape != (PANELS, SIDE, SIDE) or image.dtype != np.uint8:
            raise ValueError(f"its images are {image.dtype} of shape {image.shape}, not uint8 of {(PANELS, SIDE, SIDE)}")
        if target.size != 1 or not 0 <= int(target.item()) < CANDIDATES:
            raise ValueError(f"its target is {target.tolist()}, not one of 0 to {CANDIDATES - 1}")
    except UserError:
        raise
    except Exception as error:  # a damaged archive may fail with any exception
        raise UserError(f"{path} is no problem of I-RAVEN ({error}); delete it, or put a whole one there") from None
    return image, int(target.item())


def _read_array(archive: zipfile.ZipFile, key: str) -> npt.NDArray[Any]:
    with archive.open(f"{key}.npy") as member:
        return read_array(member, LARGEST_ARRAY)


def _contents(problem: Problem) -> dict[str, npt.NDArray[Any]]:
    configuration, matrix = configuration_named(problem.configuration), meta_matrix(problem.rules)
    return {
        "image": draw_problem(problem),
        "target": np.array(problem.target),
        "predict": np.array(problem.target),  # the solver's only answer
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


def _delete_unfinished(folder: Path) -> None:
    """Deletes old unfinished files of killed processes; younger ones may belong to a running process."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > ABANDONED:
            part.unlink(missing_ok=True)
