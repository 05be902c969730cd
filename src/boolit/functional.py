"""Logical activations as functions.

Grouped, on neighbouring channels of one tensor: ``or_ail(x)``, ``xnor_il(x, k=3, dim=1)``, and so on for each of
``and_ | or_ | xnor_`` with ``il | ail | nil | nail``; `gate` and `ensemble` take the names as arguments. On separate
tensors, with broadcasting: `combine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from boolit.logic import PAIRINGS, Program, evaluate
from boolit.logic.program import Strategy

__all__ = [
    "and_ail",
    "and_il",
    "and_nail",
    "and_nil",
    "combine",
    "ensemble",
    "gate",
    "or_ail",
    "or_il",
    "or_nail",
    "or_nil",
    "signed_geomean",
    "xnor_ail",
    "xnor_il",
    "xnor_nail",
    "xnor_nil",
]


def gate(x: Tensor, op: str, form: str = "ail", k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    """One Boolean operation on groups of k channels along ``dim``.

    Args:
        x: logits, of any floating-point type.
        op: ``and``, ``or``, ``xnor``, ``nand``, ``nor``, ``xor``, ``implies``, ``nimplies``, ``implied_by``, ``nimplied_by``.
        form: ``il`` exact, ``ail`` approximate, ``nil`` and ``nail`` the same with mean 0 and sd 1 under N(0,1) inputs.
        k: how many channels one gate reads.
        dim: the dimension of the channels.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k, as GLU does.

    Shape: ``(…, C, …)`` to ``(…, C/k, …)``.

    Example:
        >>> gate(torch.tensor([1.0, 2.0, -1.0, 3.0]), "or", "ail")
        tensor([3., 3.])
    """
    return evaluate(x, _program(((op, form),), "d", k, pairing, False), dim)


def ensemble(
    x: Tensor,
    ops: Iterable[str],
    form: str = "ail",
    strategy: Strategy = "d",
    k: int = 2,
    dim: int = -1,
    pairing: str = "adjacent",
    uneven: bool = False,
) -> Tensor:
    """Several gates in one pass: ``d`` gives each gate every group, ``p`` gives each its share; results are concatenated.

    Shape: with m gates, ``(…, C, …)`` to ``(…, m·C/k, …)`` for ``d`` and ``(…, C/k, …)`` for ``p``.

    Example:
        >>> ensemble(torch.tensor([1.0, 2.0, -1.0, 3.0]), ["or", "xnor"], "ail", "d")
        tensor([ 3.,  3.,  1., -1.])
    """
    return evaluate(x, _program(tuple((op, form) for op in ops), strategy, k, pairing, uneven), dim)


def combine(op: str, *logits: Tensor, form: str = "il") -> Tensor:
    """One Boolean operation on separate tensors of logits, which broadcast.

    Shape: the broadcast shape of the logits.

    Example:
        >>> rain, sprinkler = torch.tensor(0.0), torch.tensor([0.0, float("-inf")])
        >>> combine("or", rain, sprinkler).sigmoid()
        tensor([0.7500, 0.5000])
    """
    if len(logits) < 2:
        raise ValueError(f"combine({op!r}, …) needs at least 2 tensors of logits, got {len(logits)}")
    stacked = torch.stack(torch.broadcast_tensors(*logits))
    return evaluate(stacked, _program(((op, form),), "d", len(logits), "halves", False), 0).squeeze(0)


def signed_geomean(x: Tensor, dim: int = -1, pairing: str = "adjacent") -> Tensor:
    """sgn(x y) √|x y| of pairs of channels, with a finite gradient.

    The true derivative ½ √|y/x| diverges at x = 0; here it is 0 where an operand is exactly 0, as in the authors' code.

    Shape: ``(…, C, …)`` to ``(…, C/2, …)``.

    Example:
        >>> signed_geomean(torch.tensor([4.0, -1.0, 9.0, 4.0]))
        tensor([-2.,  6.])
    """
    first, second = operands(x, 2, dim, pairing)
    nonzero = (first != 0) & (second != 0)
    sign = 1 - 2 * ((first < 0) ^ (second < 0)).to(x.dtype)
    root = torch.where(nonzero, first.abs(), 1).sqrt() * torch.where(nonzero, second.abs(), 1).sqrt()
    return torch.where(nonzero, sign * root, 0)


def operands(x: Tensor, k: int, dim: int, pairing: str) -> tuple[Tensor, ...]:
    """The k operands of every group along ``dim``, as k views.

    Example:
        >>> operands(torch.arange(4.0), 2, -1, "halves")
        (tensor([0., 1.]), tensor([2., 3.]))
    """
    rank = x.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"dim={dim} is out of range for a tensor of shape {tuple(x.shape)}; use {-rank} to {rank - 1}")
    if not x.is_floating_point():
        raise TypeError(f"logits must be floating-point, got {x.dtype}; convert them with x.float()")
    if pairing not in PAIRINGS:
        raise ValueError(f"unknown pairing {pairing!r}; choose one of {', '.join(PAIRINGS)}")
    channels = x.shape[dim]
    if channels % k:
        below, above = channels - channels % k, channels + -channels % k
        raise ValueError(f"groups of {k} need a multiple of {k} channels, got {channels}; use {below or above} or {above}")
    dim = dim % rank
    if pairing == "adjacent":
        return torch.unbind(x.unflatten(dim, (channels // k, k)), dim + 1)
    return torch.unbind(x.unflatten(dim, (k, channels // k)), dim)


class GroupedGate(Protocol):
    """A gate with operation and form fixed."""

    def __call__(self, x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor: ...


_cached_program = lru_cache(maxsize=4096)(Program)


def _program(members: tuple[tuple[str, str], ...], strategy: Strategy, k: int, pairing: str, uneven: bool) -> Program:
    make = Program if torch.compiler.is_compiling() else _cached_program  # torch.compile warns of a cache and ignores it
    return make(members, strategy, k, pairing, uneven)


def _named(op: str, form: str) -> GroupedGate:
    def named(x: Tensor, k: int = 2, dim: int = -1, pairing: str = "adjacent") -> Tensor:
        return evaluate(x, _program(((op, form),), "d", k, pairing, False), dim)

    named.__name__ = named.__qualname__ = f"{op}_{form}"
    named.__doc__ = f'``gate(x, "{op}", "{form}", k, dim, pairing)``: {op.upper()} of groups of k logits in the form {form}.'
    return named


and_il, and_ail, and_nil, and_nail = (_named("and", form) for form in ("il", "ail", "nil", "nail"))
or_il, or_ail, or_nil, or_nail = (_named("or", form) for form in ("il", "ail", "nil", "nail"))
xnor_il, xnor_ail, xnor_nil, xnor_nail = (_named("xnor", form) for form in ("il", "ail", "nil", "nail"))
