"""What is measured and how often: our activations, torch's, the published package's, our formulas under torch.compile."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Literal, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit._devices import choose_device
from boolit.errors import UserError, user_input
from boolit.lab.bench import DTYPES, REPEATS
from boolit.logic.program import Program
from boolit.logic.reference import formula

Function: TypeAlias = Callable[[Tensor], Tensor]
Maker: TypeAlias = Literal["boolit", "torch", "published", "compiled"]
Style: TypeAlias = Literal["module", "function"]

PUBLISHED = "pytorch-logit-logic"
REFERENCES = ("relu", "silu", "gelu", "glu", "copy")


class CandidateKey(NamedTuple):
    """How a candidate is known: a spec by its maker, or a reference by torch."""

    maker: Maker
    name: str


@dataclass(frozen=True)
class Candidate:
    """A function of a tensor whose number of channels is a multiple of ``divisor``."""

    key: CandidateKey
    function: Function
    divisor: int = 1


def boolit_modules(specs: Iterable[str], dim: int) -> list[Candidate]:
    """Our modules."""
    modules = [boolit.activation(spec, dim) for spec in specs]
    return [Candidate(CandidateKey("boolit", module.spec), module, module.divisor) for module in modules]


def boolit_functions(specs: Iterable[str]) -> list[Candidate]:
    """The specs that are functions as well, along the last dimension."""
    named = boolit.functional.__all__
    return [Candidate(CandidateKey("boolit", spec), getattr(boolit.functional, spec), 2) for spec in specs if spec in named]


def torch_candidates(style: Style, dim: int = -1) -> list[Candidate]:
    """torch's modules, or its functions, which are along the last dimension; and a plain copy of the input."""
    modules: tuple[Function, ...] = (nn.ReLU(), nn.SiLU(), nn.GELU(), nn.GLU(dim), torch.clone)
    functions: tuple[Function, ...] = (torch.relu, F.silu, F.gelu, F.glu, torch.clone)
    named = zip(REFERENCES, modules if style == "module" else functions, strict=True)
    return [Candidate(CandidateKey("torch", name), function, 2 if name == "glu" else 1) for name, function in named]


def published_modules(specs: Iterable[str], dim: int) -> list[Candidate]:
    """The published package's modules for those of the specs it has; raises ImportError if it is not installed."""
    package = importlib.import_module(PUBLISHED.replace("-", "_"))
    found = []
    for spec in specs:
        program = program_of(spec)
        make = getattr(package, _published_name(program), None) if program else None
        if program and make:
            found.append(Candidate(CandidateKey("published", spec), make(k=program.k, dim=dim), program.divisor))
    return found


def _published_name(program: Program) -> str:
    """Its class for these gates, of which it has neighbouring channels and even shares only: AIL_OR, IL_AND_OR_duplicate."""
    forms = {form for _, form in program.members}
    if len(forms) > 1 or program.pairing != "adjacent" or program.uneven:
        return ""
    gates = "_".join([forms.pop(), *sorted(op for op, _ in program.members)]).upper()
    return gates if len(program.members) == 1 else gates + {"d": "_duplicate", "p": "_partition"}[program.strategy]


def compiled_formulas(specs: Iterable[str], dim: int) -> list[Candidate]:
    """Our formulas under torch.compile, which compiles in the first call of each shape."""
    programs = {spec: program for spec in specs if (program := program_of(spec))}
    return [
        Candidate(
            CandidateKey("compiled", spec),
            torch.compile(_formula(program, dim), fullgraph=True, dynamic=False),
            program.divisor,
        )
        for spec, program in programs.items()
    ]


def _formula(program: Program, dim: int) -> Function:
    def apply(x: Tensor) -> Tensor:
        return formula(x, program, dim % x.dim())

    # A code object of its own for each: torch.compile keeps what it compiled by code object, eight a piece at most.
    return cast(Function, FunctionType(apply.__code__.replace(), apply.__globals__, closure=apply.__closure__))


def program_of(spec: str) -> Program | None:
    """What the kernels run for it; None for a baseline, or members that do not share a grouping."""
    program: Program | None = getattr(boolit.activation(spec), "program", None)
    return program


# What is measured, and how often.

Direction: TypeAlias = Literal["forward", "forward+backward"]

DIRECTIONS: tuple[Direction, ...] = ("forward", "forward+backward")
SPECS = (*(f"{op}_{form}" for form in ("ail", "nail", "il", "nil") for op in ("or", "and", "xnor")), "or_and_xnor_ail_d")


@dataclass(frozen=True)
class TensorCase:
    """A tensor to be activated along one of its dimensions."""

    shape: tuple[int, ...]
    dim: int

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape))}, dim {self.dim}".replace("-", "−")


CPU = torch.device("cpu")
CASES = (TensorCase((1024, 1024), -1), TensorCase((64, 64, 32, 32), 1))


@dataclass(frozen=True)
class BenchSettings:
    """A benchmark of the gates: everything that its result depends on, except the machine.

    Example:
        >>> BenchSettings(specs=("or_ail",), cases=(TensorCase((4, 7), -1),))
        Traceback (most recent call last):
        boolit.errors.UserError: or_ail needs a multiple of 2 channels, got 7; use 6 or 8
    """

    cases: tuple[TensorCase, ...] = CASES
    specs: tuple[str, ...] = SPECS
    repeats: int = REPEATS
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    device: torch.device = CPU

    def __post_init__(self) -> None:
        with user_input():
            for case in self.cases:
                for spec in self.specs:
                    boolit.activation(spec, case.dim).out_features(case.shape[case.dim])

    @property
    def has_bars(self) -> bool:
        """Whether boolit promises anything about times there: of a GPU nobody has measured them."""
        return self.device.type == "cpu"


def parse_settings(
    shapes: Sequence[str] = (),
    dims: Sequence[int] = (),
    specs: Sequence[str] = (),
    repeats: int = REPEATS,
    dtype: str = "float32",
    compiled: bool = False,
    device: str = "cpu",
) -> BenchSettings:
    """The settings a user wrote; what is left out is as the bars have it.

    Example:
        >>> [str(case) for case in parse_settings(["64x10", "2x6x5"]).cases]
        ['64×10, dim −1', '2×6×5, dim 1']
    """
    if dtype not in DTYPES:
        raise UserError(f"unknown type {dtype!r}; choose one of {', '.join(DTYPES)}")
    with user_input():
        chosen = choose_device(device)
    if chosen.type not in ("cpu", "cuda"):
        raise UserError(f"the benchmark knows the clocks of cpu and cuda, not of {device!r}; choose one of these")
    return BenchSettings(_cases(shapes, dims), _specs(specs) or SPECS, repeats, getattr(torch, dtype), compiled, chosen)


def _cases(shapes: Sequence[str], dims: Sequence[int]) -> tuple[TensorCase, ...]:
    sizes = [_shape(shape) for shape in shapes] or [case.shape for case in CASES]
    if not dims:
        dims = [-1 if len(shape) < 3 else 1 for shape in sizes]  # images have their channels second
    if len(dims) != len(sizes):
        raise UserError(f"{len(dims)} times --dim do not go with {len(sizes)} shapes; give one --dim for each --shape, or none")
    return tuple(_case(shape, dim) for shape, dim in zip(sizes, dims, strict=True))


def _case(shape: tuple[int, ...], dim: int) -> TensorCase:
    rank = len(shape)
    if not -rank <= dim < rank:
        raise UserError(f"--dim {dim} is out of range for the shape {'x'.join(map(str, shape))}; use {-rank} to {rank - 1}")
    return TensorCase(shape, dim)


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*)*", text):
        raise UserError(f"{text!r} is no shape; write positive sizes with x between them, like 64x64x32x32")
    return tuple(map(int, text.split("x")))


def _specs(names: Sequence[str]) -> tuple[str, ...]:
    """As their modules spell them, each once."""
    with user_input():
        return tuple(dict.fromkeys(boolit.activation(name).spec for given in names for name in given.split(",")))
