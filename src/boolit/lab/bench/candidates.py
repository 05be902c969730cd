"""Who is measured: our activations, torch's, the published package's, and our formulas under torch.compile."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Literal, NamedTuple, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit.logic.formulas import formula
from boolit.logic.program import Program

Function: TypeAlias = Callable[[Tensor], Tensor]
Maker: TypeAlias = Literal["boolit", "torch", "published", "compiled"]

PUBLISHED = "pytorch-logit-logic"
REFERENCES = ("relu", "silu", "gelu", "glu", "copy")


class Key(NamedTuple):
    """How a candidate is known: a spec by its maker, or a reference by torch."""

    maker: Maker
    name: str


@dataclass(frozen=True)
class Candidate:
    """A function of a tensor whose number of channels is a multiple of ``divisor``."""

    key: Key
    function: Function
    divisor: int = 1


def ours(specs: Iterable[str], dim: int) -> list[Candidate]:
    """Our modules."""
    modules = [boolit.activation(spec, dim) for spec in specs]
    return [Candidate(Key("boolit", module.spec), module, module.divisor) for module in modules]


def references(dim: int) -> list[Candidate]:
    """torch's modules, and a plain copy of the input."""
    functions: tuple[Function, ...] = (nn.ReLU(), nn.SiLU(), nn.GELU(), nn.GLU(dim), torch.clone)
    return [_reference(name, function) for name, function in zip(REFERENCES, functions, strict=True)]


def our_functions(specs: Iterable[str]) -> list[Candidate]:
    """The specs that are functions as well, along the last dimension."""
    named = boolit.functional.__all__
    return [Candidate(Key("boolit", spec), getattr(boolit.functional, spec), 2) for spec in specs if spec in named]


def reference_functions() -> list[Candidate]:
    """torch's functions, along the last dimension."""
    functions: tuple[Function, ...] = (torch.relu, F.silu, F.gelu, F.glu, torch.clone)
    return [_reference(name, function) for name, function in zip(REFERENCES, functions, strict=True)]


def _reference(name: str, function: Function) -> Candidate:
    return Candidate(Key("torch", name), function, 2 if name == "glu" else 1)


def published(specs: Iterable[str], dim: int) -> list[Candidate]:
    """The published package's modules for those of the specs it has; raises ImportError if it is not installed."""
    package = importlib.import_module(PUBLISHED.replace("-", "_"))
    found = []
    for spec in specs:
        program = program_of(spec)
        make = getattr(package, _published_name(program), None) if program else None
        if program and make:
            found.append(Candidate(Key("published", spec), make(k=program.k, dim=dim), program.divisor))
    return found


def _published_name(program: Program) -> str:
    """Its class for these gates, of which it has neighbouring channels and even shares only: AIL_OR, IL_AND_OR_duplicate."""
    forms = {form for _, form in program.members}
    if len(forms) > 1 or program.pairing != "adjacent" or program.uneven:
        return ""
    gates = "_".join([forms.pop(), *sorted(op for op, _ in program.members)]).upper()
    return gates if len(program.members) == 1 else gates + {"d": "_duplicate", "p": "_partition"}[program.strategy]


def compiled(specs: Iterable[str], dim: int) -> list[Candidate]:
    """Our formulas under torch.compile, which compiles in the first call of each shape."""
    programs = {spec: program for spec in specs if (program := program_of(spec))}
    return [
        Candidate(Key("compiled", spec), torch.compile(_formula(program, dim), fullgraph=True, dynamic=False), program.divisor)
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
