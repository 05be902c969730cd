"""Gates over lists of channels: OR, AND and XNOR of groups of any size, or of all members of a group but one."""

from __future__ import annotations

import ctypes
import sysconfig
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from boolit.logic import Program, cpu
from boolit.logic.dispatch import check_logits, is_ordinary, position
from boolit.logic.reference import FORMULAS, Join, join_tree

ABI = 3
JOINS: list[Join] = [FORMULAS["or", "ail"], FORMULAS["xnor", "ail"], FORMULAS["or", "il"], FORMULAS["xnor", "il"]]  # by kind
NEUTRAL = [-torch.inf, torch.inf, -torch.inf, torch.inf]  # results for no operands


def gather_gate(x: Tensor, groups: Any, spec: str = "xnor_il", leave_one_out: bool = False, dim: int = -1) -> Tensor:
    """Apply a gate to lists of channels.

    Args:
        x: Logits of float32 or float64.
        groups: The channels of each group, in any order and number: a pair of integer tensors ``(offsets, indices)`` as in a
            CSR matrix, a sparse matrix of torch or scipy with a row for each group, or `IndexLists`, which are checked once.
        spec: ``or``, ``and`` or ``xnor``, exact (``xnor_il``) or approximate (``xnor_ail``).
        leave_one_out: Whether to return, for every member of every group, the gate of all *other* members. It is computed as a
            tree of partial results, without division or subtraction.
        dim: Dimension of the channels.

    Returns:
        A tensor with one channel for each group or, with ``leave_one_out``, for each entry of ``indices``. A gate without
        operands is certain: −∞ for OR, +∞ for AND and XNOR.

    Example:
        >>> offsets, indices = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 1, 2, 3])
        >>> x = torch.tensor([2.0, -1.0, 3.0, 4.0])
        >>> gather_gate(x, (offsets, indices), "xnor_ail")
        tensor([-1., -1.])
        >>> gather_gate(x, (offsets, indices), "xnor_ail", leave_one_out=True)
        tensor([-1.,  2.,  3., -1., -1.])
    """
    check_logits(x)
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"gather_gate computes in float32 or float64, got {x.dtype}; convert the logits with x.float()")
    kind, negated = parse_gate(spec)
    lists = IndexLists.read(groups)
    dim = position(dim, x.shape)
    if lists.largest >= x.shape[dim]:
        raise IndexError(f"groups name channel {lists.largest}, but dimension {dim} of the logits has {x.shape[dim]}")
    rows = x.movedim(dim, 0)
    out = gather(rows.flatten(1) if x.dim() > 1 else rows[:, None], lists, kind, leave_one_out, negated)
    return out.unflatten(1, rows.shape[1:]).movedim(0, dim) if x.dim() > 1 else out[:, 0]


def parse_gate(spec: str) -> tuple[int, bool]:
    """Return the code of a gate's formula, and whether its inputs and its output are negated (AND by way of OR)."""
    program = Program.parse(spec)
    ((name, form),) = program.members if len(program.members) == 1 else (("", ""),)
    if name not in ("or", "and", "xnor") or form not in ("il", "ail") or program.k != 2:
        raise ValueError(f"{spec!r} is not a gate of any number of logits; use or, and or xnor with il or ail, such as 'or_il'")
    return 2 * (form == "il") + (name == "xnor"), name == "and"


class IndexLists:
    """Lists of indices in CSR form: list g is ``indices[offsets[g]:offsets[g + 1]]``.

    Example:
        >>> IndexLists.read(torch.eye(2).to_sparse()).indices
        tensor([0, 1])
    """

    def __init__(self, offsets: Tensor, indices: Tensor) -> None:
        self.offsets, self.indices = (_as_integers(values) for values in (offsets, indices))
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.indices):
            raise ValueError(f"offsets of lists with {len(self.indices)} entries must start with 0 and end with that number")
        self.lengths = self.offsets.diff()
        if (self.lengths < 0).any() or (self.indices < 0).any():
            raise ValueError("offsets of lists must not decrease, and indices must not be negative")
        self.largest = int(self.indices.max()) if len(self.indices) else -1

    @staticmethod
    def read(groups: Any) -> IndexLists:
        """Return the lists of a pair ``(offsets, indices)``, or the non-zero columns in each row of a matrix."""
        if isinstance(groups, IndexLists):
            return groups
        if isinstance(groups, (tuple, list)) and len(groups) == 2:
            return IndexLists(*groups)
        if hasattr(groups, "tocsr"):  # scipy
            matrix = groups.tocsr().copy()
            matrix.eliminate_zeros()
            matrix.sort_indices()
            return IndexLists(matrix.indptr, matrix.indices)
        if not isinstance(groups, Tensor) or groups.dim() != 2:
            raise TypeError(f"groups must be a pair (offsets, indices) or a sparse matrix, got {type(groups).__name__}")
        sparse = groups.to_sparse_coo().coalesce()  # sorted by rows, then columns
        rows, columns = sparse.indices()[:, sparse.values() != 0]
        return IndexLists.from_entries(rows, columns, groups.shape[0])

    @staticmethod
    def from_entries(rows: Tensor, values: Tensor, count: int) -> IndexLists:
        """Return ``count`` lists: value i goes to list ``rows[i]``."""
        rows = rows.cpu()
        offsets = torch.zeros(count + 1, dtype=torch.int64)
        offsets[1:] = torch.bincount(rows, minlength=count).cumsum(0)
        return IndexLists(offsets, values.cpu()[rows.argsort(stable=True)])

    @property
    def rows(self) -> Tensor:
        """The list that each entry belongs to."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    @cached_property
    def by_length(self) -> list[tuple[Tensor, Tensor]]:
        """Lists of equal length: which they are, and where their entries are, of shape ``(length, lists)``."""
        result = []
        for length in self.lengths.unique().tolist():
            members = (self.lengths == length).nonzero()[:, 0]
            result.append((members, self.offsets[members] + torch.arange(length)[:, None]))
        return result


def _as_integers(values: Any) -> Tensor:
    tensor = torch.as_tensor(values).cpu()
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.dim() != 1:
        raise TypeError(f"offsets and indices are vectors of integers, got shape {tuple(tensor.shape)} and {tensor.dtype}")
    return tensor.to(torch.int64).contiguous()


def gather(x: Tensor, lists: IndexLists, kind: int, leave_one_out: bool = False, negated: bool = False) -> Tensor:
    """Join rows of a tensor of shape ``(rows, batch)`` by lists. Indices are not checked."""
    if has_kernel(x):
        return cast(Tensor, _apply(x.contiguous(), lists, kind, leave_one_out, negated))
    return gather_reference(x, lists, kind, leave_one_out, negated)


def gather_reference(x: Tensor, lists: IndexLists, kind: int, leave_one_out: bool, negated: bool = False) -> Tensor:
    """Join rows by lists in pure torch, all lists of one length at a time."""
    join, indices = JOINS[kind], lists.indices.to(x.device)
    x = -x if negated else x
    parts, places = [x[:0]], [indices[:0]]
    for members, entries in lists.by_length:
        operands = x[indices[entries.to(x.device)]]
        if leave_one_out:
            parts.append(leave_each_out(operands, join, NEUTRAL[kind]).flatten(0, 1))
            places.append(entries.flatten().to(x.device))
        else:
            empty = x.new_full((len(members), x.shape[1]), NEUTRAL[kind])
            parts.append(join_tree(operands, join) if len(operands) else empty)
            places.append(members.to(x.device))
    out = torch.cat(parts)[torch.cat(places).argsort()]
    return -out if negated else out


def leave_each_out(operands: Tensor, join: Join, neutral: float) -> Tensor:
    """For each operand along dimension 0, join all others.

    The operands are the leaves of a balanced tree. Going down, what is outside of a child is what is outside of its parent,
    joined with its sibling: at most 2⌈log2 k⌉ − 2 joins follow each other, where prefixes and suffixes need k − 2.
    """
    k = operands.shape[0]
    if k <= 2:
        return operands.flip(0) if k != 1 else torch.full_like(operands, neutral)
    pairs = operands[: k // 2 * 2].unflatten(0, (-1, 2))
    odd = operands[k // 2 * 2 :]
    above = leave_each_out(torch.cat([join(pairs[:, 0], pairs[:, 1]), odd]), join, neutral)
    outside = above[: k // 2, None].expand_as(pairs)
    return torch.cat([join(outside, pairs.flip(1)).flatten(0, 1), above[k // 2 :]])


# ------------------------------------------------------------------------------------------------ kernels


class ListsStruct(ctypes.Structure):
    """BoolitLists of graphs.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("threads", "is_double", "kind", "negated", "leave_one_out")),
        *((name, ctypes.c_int64) for name in ("groups", "batch")),
        *((name, ctypes.c_void_p) for name in ("offsets", "indices")),
    ]


def _load() -> ctypes.CDLL | None:
    """Load the library for the instruction set that the gates use."""
    if not cpu.status().active:
        return None
    name = f"_graphs_{str(cpu.status().instructions).replace('-', '_')}{sysconfig.get_config_var('EXT_SUFFIX')}"
    path = Path(__file__).parent / "kernels" / name
    library = ctypes.CDLL(str(path)) if path.exists() else None
    if library is None or library.boolit_graphs_abi() != ABI:
        return None
    library.boolit_lists_forward.argtypes, library.boolit_lists_forward.restype = [ctypes.c_void_p] * 3, None
    library.boolit_lists_backward.argtypes, library.boolit_lists_backward.restype = [ctypes.c_void_p] * 4, None
    library.boolit_decode.argtypes, library.boolit_decode.restype = [ctypes.c_void_p] * 2, None
    return library


LIBRARY = _load()


def has_kernel(x: Tensor) -> bool:
    """Return whether kernels can read the memory of a tensor."""
    floats = (torch.float32, torch.float64)
    return LIBRARY is not None and not is_dynamo_compiling() and is_ordinary(x) and x.is_cpu and x.dtype in floats


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, lists: IndexLists, kind: int, leave_one_out: bool, negated: bool) -> Tensor:
        assert LIBRARY is not None
        is_double, groups = x.dtype == torch.float64, len(lists.lengths)
        pointers = lists.offsets.data_ptr(), lists.indices.data_ptr()
        struct = ListsStruct(torch.get_num_threads(), is_double, kind, negated, leave_one_out, groups, x.shape[1], *pointers)
        out = x.new_empty(len(lists.indices) if leave_one_out else groups, x.shape[1])
        LIBRARY.boolit_lists_forward(ctypes.byref(struct), x.data_ptr(), out.data_ptr())
        ctx.struct, ctx.options = struct, (lists, kind, leave_one_out, negated)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        # The backward may itself be differentiated or batched.
        if torch.is_grad_enabled() or not (has_kernel(grad) and has_kernel(x)):
            pullback: Any = torch.func.vjp(lambda rows: gather_reference(rows, *ctx.options), x)[1]
            return pullback(grad)[0], None, None, None, None
        assert LIBRARY is not None
        grad, grad_x = grad.contiguous(), torch.zeros_like(x)
        LIBRARY.boolit_lists_backward(ctypes.byref(ctx.struct), x.data_ptr(), grad.data_ptr(), grad_x.data_ptr())
        return grad_x, None, None, None, None


_apply: Any = _Gather.apply
