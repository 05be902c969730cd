"""Gates, ensembles and the signed geometric mean, with the operation as an argument."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.fx import Proxy
from torch.jit import is_scripting  # type: ignore[attr-defined]

from boolit.logic import PAIRINGS, Program, evaluate
from boolit.logic.kernels.logits import check_logits, position, sizes
from boolit.logic.program import Strategy
from boolit.logic.vocabulary import check_word


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
    if is_scripting():
        result: Tensor = torch.ops.boolit.evaluate(x, f"{op}_{form}:d:k{k}:{pairing}", dim)
        return result
    else:  # noqa: RET505 (TorchScript compiles what follows a return, but not this)
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
    if isinstance(ops, str):
        raise TypeError(f"ops is a list of operations, got the string {ops!r}; write {ops.split('_')!r}")
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
    for logit in logits:
        check_logits(logit)
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


def operands(x: Tensor, k: int, dim: int, pairing: str) -> list[Tensor]:
    """The k operands of every group along ``dim``, as k views.

    Example:
        >>> operands(torch.arange(4.0), 2, -1, "halves")
        [tensor([0., 1.]), tensor([2., 3.])]
    """
    if not is_scripting():
        _check_operands(x, k, dim, pairing)
    # no size is read here, and an axis is counted from the side dim is counted from: so torch's tracers can follow
    if pairing == "adjacent":
        grouped, axis = x.unflatten(dim, (-1, k)), dim + 1 if dim >= 0 else dim
    else:
        grouped, axis = x.unflatten(dim, (k, -1)), dim if dim >= 0 else dim - 1
    views = grouped.unbind(axis)
    return [views[i] for i in range(k)]


def _check_operands(x: Tensor | Proxy, k: int, dim: int, pairing: str) -> None:
    check_word("pairing", pairing, PAIRINGS)
    if isinstance(x, Proxy):
        return
    check_logits(x)
    shape = sizes(x)
    channels = shape[position(dim, shape)]
    if channels % k:
        below, above = channels - channels % k, channels + -channels % k
        raise ValueError(f"groups of {k} need a multiple of {k} channels, got {channels}; use {below or above} or {above}")


_cached_program = lru_cache(maxsize=4096, typed=True)(Program)  # typed: 2, 2.0 and True are equal, and one is a k


def _program(members: tuple[tuple[str, str], ...], strategy: Strategy, k: int, pairing: str, uneven: bool) -> Program:
    if not is_dynamo_compiling():  # which warns of a cache and ignores it
        try:
            return _cached_program(members, strategy, k, pairing, uneven)
        except TypeError:  # unhashable, or no integer: Program says what is wrong
            pass
    return Program(members, strategy, k, pairing, uneven)
