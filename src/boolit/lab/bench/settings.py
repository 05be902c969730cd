"""What is measured, and how often."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

import boolit
from boolit.lab.errors import UserError, user_input

Direction: TypeAlias = Literal["forward", "forward+backward"]
Style: TypeAlias = Literal["module", "function"]

DIRECTIONS: tuple[Direction, ...] = ("forward", "forward+backward")
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
SPECS = (*(f"{op}_{form}" for form in ("ail", "nail", "il", "nil") for op in ("or", "and", "xnor")), "or_and_xnor_ail_d")
REPEATS = 60


@dataclass(frozen=True)
class Case:
    """A tensor to be activated along one of its dimensions."""

    shape: tuple[int, ...]
    dim: int

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape))}, dim {self.dim}".replace("-", "−")


CASES = (Case((1024, 1024), -1), Case((64, 64, 32, 32), 1))


@dataclass(frozen=True)
class Settings:
    """A benchmark of the gates, all that decides its figures but the machine.

    Example:
        >>> Settings(specs=("or_ail",), cases=(Case((4, 7), -1),))
        Traceback (most recent call last):
        boolit.lab.errors.UserError: or_ail needs a multiple of 2 channels, got 7; use 6 or 8
    """

    cases: tuple[Case, ...] = CASES
    specs: tuple[str, ...] = SPECS
    repeats: int = REPEATS
    dtype: torch.dtype = torch.float32
    compiled: bool = False

    def __post_init__(self) -> None:
        with user_input():
            for case in self.cases:
                for spec in self.specs:
                    boolit.activation(spec, case.dim).out_features(case.shape[case.dim])


def read(
    shapes: Sequence[str] = (),
    dims: Sequence[int] = (),
    specs: Sequence[str] = (),
    repeats: int = REPEATS,
    dtype: str = "float32",
    compiled: bool = False,
) -> Settings:
    """The settings a user wrote; what is left out is as the bars have it.

    Example:
        >>> [str(case) for case in read(["64x10", "2x6x5"]).cases]
        ['64×10, dim −1', '2×6×5, dim 1']
    """
    if dtype not in DTYPES:
        raise UserError(f"unknown type {dtype!r}; choose one of {', '.join(DTYPES)}")
    return Settings(_cases(shapes, dims), _specs(specs) or SPECS, repeats, DTYPES[dtype], compiled)


def _cases(shapes: Sequence[str], dims: Sequence[int]) -> tuple[Case, ...]:
    sizes = [_shape(shape) for shape in shapes] or [case.shape for case in CASES]
    if not dims:
        dims = [-1 if len(shape) < 3 else 1 for shape in sizes]  # images have their channels second
    if len(dims) != len(sizes):
        raise UserError(f"{len(dims)} times --dim do not go with {len(sizes)} shapes; give one --dim for each --shape, or none")
    return tuple(_case(shape, dim) for shape, dim in zip(sizes, dims, strict=True))


def _case(shape: tuple[int, ...], dim: int) -> Case:
    rank = len(shape)
    if not -rank <= dim < rank:
        raise UserError(f"--dim {dim} is out of range for the shape {'x'.join(map(str, shape))}; use {-rank} to {rank - 1}")
    return Case(shape, dim)


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*)*", text):
        raise UserError(f"{text!r} is no shape; write positive sizes with x between them, like 64x64x32x32")
    return tuple(map(int, text.split("x")))


def _specs(names: Sequence[str]) -> tuple[str, ...]:
    """As their modules spell them, each once."""
    with user_input():
        return tuple(dict.fromkeys(boolit.activation(name).spec for given in names for name in given.split(",")))
