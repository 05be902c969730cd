"""Belief propagation on parity-check codes: a linear layer that adds logits, and XNOR gates, in turn."""

from __future__ import annotations

import ctypes
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from boolit.graphs.gather import LIBRARY, IndexLists, gather, has_kernel, parse_gate
from boolit.logic.dispatch import check_logits
from boolit.logic.operations import check_choice
from boolit.logic.reference import add

SCHEDULES = ("flooding", "layered")
WEIGHTS = ("iteration", "edge", "edge_iteration")


class Decoded(NamedTuple):
    """Result of decoding a batch of shots.

    Attributes:
        logits: Posterior logit of each bit being 0, of shape ``(shots, bits)``.
        bits: Hard decisions of the same shape. A logit of exactly 0 is decided as 1, as in ldpc.
        converged: Whether the decisions satisfy all checks, of shape ``(shots,)``.
        iterations: Number of iterations that each shot took.
    """

    logits: Tensor
    bits: Tensor
    converged: Tensor
    iterations: Tensor


class BeliefPropagation(nn.Module):
    """Decoder for a binary linear code.

    Logits are those of a bit being 0 (or of no error): log P(0)/P(1). In an iteration, each check sends each of its variables
    the XNOR of what its other variables say, and each variable adds up its prior and what its other checks say. On a graph
    without cycles the result is the exact posterior. Messages are not clipped: sums saturate only at the largest number, and
    ±∞ are certain events.

    Shots on the CPU are decoded by a compiled kernel, many at a time. Where gradients are needed, or on other devices, the same
    is computed by operations of torch.

    Args:
        H: Parity-check matrix with a row for each check: a dense tensor, array or list, or a sparse matrix of torch or scipy.
        iterations: Maximum number of iterations.
        form: ``il`` for the exact XNOR (product-sum), ``ail`` for the approximate one (min-sum).
        schedule: ``flooding`` updates all checks at once; ``layered`` updates them in turn, so that checks see the messages of
            the checks before them.
        scaling: Factor of the messages of checks (normalized min-sum).
        offset: Amount by which these messages are reduced in size, at most to 0 (offset min-sum).
        damping: Share of the previous message in a new one.
        memory: Share γ of a bit's last posterior in its prior, ``(1 − γ) channel + γ posterior``: a number, or one per bit.
        weights: Whether the factors of messages are learned, one for each ``iteration``, ``edge``, or ``edge_iteration`` (each
            edge in each iteration). They start as ``scaling``. If None, nothing is learned.
        early_stop: Whether a shot is finished as soon as its decisions satisfy all checks.

    Example:
        >>> H = [[1, 1, 0], [0, 1, 1]]  # a repetition code
        >>> decoder = BeliefPropagation(H, iterations=5)
        >>> decoder(torch.tensor([2.0, -1.0, 3.0])).bits
        tensor([False, False, False])
        >>> decoder(torch.full((3,), 2.0), syndrome=torch.tensor([1, 0])).bits
        tensor([ True, False, False])
    """

    weights: Tensor
    memory: Tensor | None

    def __init__(
        self,
        H: Any,  # noqa: N803
        iterations: int = 50,
        form: str = "il",
        schedule: str = "flooding",
        scaling: float = 1.0,
        offset: float = 0.0,
        damping: float = 0.0,
        memory: float | Tensor = 0.0,
        weights: str | None = None,
        early_stop: bool = True,
    ) -> None:
        super().__init__()
        check_choice("form", form, ("il", "ail"))
        check_choice("schedule", schedule, SCHEDULES)
        if iterations < 1 or not 0 <= damping < 1 or offset < 0:
            raise ValueError(f"iterations={iterations} must be at least 1, offset={offset} ≥ 0 and 0 ≤ damping={damping} < 1")
        self.iterations, self.form, self.schedule, self.early_stop = iterations, form, schedule, early_stop
        self.offset, self.damping = float(offset), float(damping)
        self.graph = TannerGraph(H, schedule == "layered")
        if weights is None:
            self.register_buffer("weights", torch.full((1, 1), float(scaling)), persistent=False)
        else:
            check_choice("weights", weights, WEIGHTS)
            shape = iterations if "iteration" in weights else 1, self.graph.edges if "edge" in weights else 1
            self.weights = nn.Parameter(torch.full(shape, float(scaling)))
        gamma = torch.as_tensor(memory, dtype=torch.float64)
        if gamma.shape not in ((), (self.graph.variables,)):
            raise ValueError(
                f"memory has shape {tuple(gamma.shape)}; give one number, or one for each of {self.graph.variables} bits"
            )
        filled = gamma.expand(self.graph.variables)[:, None].clone()
        self.register_buffer("memory", filled if gamma.any() else None, persistent=False)

    def extra_repr(self) -> str:
        """Describe the code and the schedule."""
        graph = self.graph
        sizes = f"checks={graph.checks}, bits={graph.variables}, edges={graph.edges}"
        return f"{sizes}, iterations={self.iterations}, form={self.form!r}, schedule={self.schedule!r}"

    def forward(self, channel_logits: Tensor, syndrome: Any = None) -> Decoded:
        """Decode one shot or a batch.

        Args:
            channel_logits: Prior logits of float32 or float64, of shape ``(bits,)`` or ``(shots, bits)``.
            syndrome: The parity of each check, of shape ``(checks,)`` or ``(shots, checks)``: a tensor, array or list. All are
                even if None.

        Returns:
            Posterior logits, hard decisions, convergence and iterations. Without a batch dimension in both arguments there is
            none in the result.
        """
        channel, syndromes, shots = self._read(channel_logits, syndrome)
        needs_grad = torch.is_grad_enabled() and (channel.requires_grad or self.weights.requires_grad)
        if has_kernel(channel) and not needs_grad:
            result = self._decode_by_kernel(channel, syndromes, shots)
        else:
            result = self._decode(channel, syndromes, shots)
        is_batch = channel_logits.dim() == 2 or (syndrome is not None and torch.as_tensor(syndrome).dim() == 2)
        return result if is_batch else Decoded(*(part[0] for part in result))

    def trajectory(self, channel_logits: Tensor, syndrome: Any = None) -> Tensor:
        """Return the posterior logits after each iteration, without early stop: ``(iterations, shots, bits)``.

        A loss on all iterations trains weights faster than one on the last.
        """
        channel, syndromes, shots = self._read(channel_logits, syndrome)
        columns = channel.expand(shots, -1).T
        signs, posterior = self._signs(syndromes, columns), columns
        messages = columns.new_zeros(self.graph.edges, shots)
        posteriors = []
        for iteration in range(self.iterations):
            posterior, messages = self._step(iteration, columns, posterior, messages, signs)
            posteriors.append(posterior.T)
        return torch.stack(posteriors)

    def _read(self, channel_logits: Tensor, syndrome: Any) -> tuple[Tensor, Tensor | None, int]:
        check_logits(channel_logits)
        if channel_logits.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"belief propagation computes in float32 or float64, got {channel_logits.dtype}; convert with .float()"
            )
        channel = _as_rows("channel_logits", channel_logits, self.graph.variables)
        if syndrome is None:
            return channel, None, len(channel)
        syndromes = _as_rows("syndrome", torch.as_tensor(syndrome), self.graph.checks).to(channel.device).bool()
        if len(channel) != len(syndromes) and 1 not in (len(channel), len(syndromes)):
            raise ValueError(f"channel_logits has {len(channel)} shots and syndrome has {len(syndromes)}")
        return channel, syndromes, max(len(channel), len(syndromes)) if len(channel) and len(syndromes) else 0

    def _signs(self, syndromes: Tensor | None, columns: Tensor) -> Tensor:
        """Return the sign of the messages on each edge, of shape ``(edges, shots)``."""
        if syndromes is None:
            return columns.new_ones(1, 1).expand(self.graph.edges, columns.shape[1])
        signs = 1 - 2 * syndromes.expand(columns.shape[1], -1).T.to(columns.dtype)
        return signs[self.graph.checks_of_edges.to(columns.device)]

    def _step(
        self, iteration: int, channel: Tensor, posterior: Tensor, messages: Tensor, signs: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the posterior and the messages after one iteration. Tensors are of shape ``(bits or edges, shots)``."""
        prior = channel
        if self.memory is not None:
            gamma = self.memory.to(channel)
            prior = add(channel * (1 - gamma), posterior * gamma)
        weights = self.weights[iteration % len(self.weights)].to(channel)[:, None].expand(self.graph.edges, 1)
        largest = torch.finfo(channel.dtype).max
        for layer in self.graph.layers:
            edges = layer.edges.to(channel.device)
            incoming = sum_rows(prior, messages, layer.before, layer.behind)
            outside = gather(incoming, layer.checks, parse_gate(f"xnor_{self.form}")[0], leave_one_out=True)
            message = outside * (signs * weights)[edges]
            if self.offset:
                message = message.sign() * (message.abs() - self.offset).relu()
            if self.damping:
                message = message * (1 - self.damping) + messages[edges] * self.damping
            if message.isinf().any():
                message = torch.where(outside.isfinite(), message.clamp(-largest, largest), message)
            messages = message if len(edges) == len(messages) else messages.index_copy(0, edges, message)
        return sum_rows(prior, messages, self.graph.rows), messages

    def _decode(self, channel: Tensor, syndromes: Tensor | None, shots: int) -> Decoded:
        columns = channel.expand(shots, -1).T
        signs, posterior, messages = self._signs(syndromes, columns), columns, columns.new_zeros(self.graph.edges, shots)
        remaining = torch.arange(shots, device=channel.device)
        parts: list[tuple[Tensor, ...]] = []
        for iteration in range(self.iterations):
            posterior, messages = self._step(iteration, columns, posterior, messages, signs)
            bits = posterior <= 0
            odd = gather((1 - 2 * bits.to(signs.dtype)).detach(), self.graph.check_lists, 1) < 0
            required = odd.new_zeros(1, 1) if syndromes is None else syndromes.expand(shots, -1).T[:, remaining]
            satisfied = (odd == required).all(0)
            leaving = satisfied & self.early_stop | (iteration + 1 == self.iterations)
            rounds = torch.full_like(remaining, iteration + 1)
            parts.append(tuple(part[leaving] for part in (remaining, posterior.T, bits.T, satisfied, rounds)))
            if leaving.all():
                break
            if leaving.any():
                remaining = remaining[~leaving]
                columns, signs, posterior, messages = (part[:, ~leaving] for part in (columns, signs, posterior, messages))
        order, *results = (torch.cat(part) for part in zip(*parts, strict=True))
        return Decoded(*(result[order.argsort()] for result in results))

    def _decode_by_kernel(self, channel: Tensor, syndromes: Tensor | None, shots: int) -> Decoded:
        assert LIBRARY is not None
        channel, weights = channel.detach().contiguous(), self.weights.detach().to(channel).contiguous()
        syndromes = None if syndromes is None else syndromes.contiguous()
        memory = None if self.memory is None else self.memory.to(channel)
        logits = channel.new_empty(shots, self.graph.variables)
        bits, converged = logits.new_empty(logits.shape, dtype=torch.bool), logits.new_empty(shots, dtype=torch.bool)
        rounds = logits.new_empty(shots, dtype=torch.int64)
        results = {"logits": logits, "bits": bits, "converged": converged, "rounds": rounds}
        inputs = {"channel": channel, "syndrome": syndromes, "weights": weights, "memory": memory}
        pointers = {name: None if tensor is None else tensor.data_ptr() for name, tensor in (inputs | results).items()}
        strides = {
            "channel_stride": 0 if len(channel) == 1 else self.graph.variables,
            "syndrome_stride": 0 if syndromes is None or len(syndromes) == 1 else self.graph.checks,
            "iteration_stride": 0 if len(weights) == 1 else weights.shape[1],
            "edge_stride": 0 if weights.shape[1] == 1 else 1,
        }
        is_double, kind = channel.dtype == torch.float64, parse_gate(f"xnor_{self.form}")[0]
        sizes = torch.get_num_threads(), is_double, kind, self.early_stop, shots, self.iterations
        struct = _DecodingStruct(*sizes, **pointers, **strides, offset=self.offset, damping=self.damping)
        LIBRARY.boolit_decode(ctypes.byref(self.graph.struct()), ctypes.byref(struct))
        return Decoded(logits, bits, converged, rounds)


def _as_rows(name: str, values: Tensor, columns: int) -> Tensor:
    if values.dim() not in (1, 2) or values.shape[-1] != columns:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it needs ({columns},) or (shots, {columns})")
    return values if values.dim() == 2 else values[None]


def sum_rows(prior: Tensor, messages: Tensor, *columns: Tensor) -> Tensor:
    """Return sums of rows of the state, each matrix of row numbers from left to right, and then the sum of these."""
    state = torch.cat([prior, messages, prior.new_zeros(1, prior.shape[1])])
    parts = [[state.index_select(0, rows) for rows in matrix.T.to(state.device)] for matrix in columns]
    total = reduce(torch.add, [reduce(torch.add, part) for part in parts])
    # Sums rarely overflow. Those that do are computed again with bounds.
    return total if total.isfinite().all() else reduce(add, [reduce(add, part) for part in parts])


class Layer(NamedTuple):
    """Checks that are updated at once.

    Attributes:
        edges: Their edges.
        before: Rows of the state that an edge's variable adds before its message, a line for each edge.
        behind: Rows that it adds behind its message, from the last one on.
        checks: The edges of each check, by their position in ``edges``.
    """

    edges: Tensor
    before: Tensor
    behind: Tensor
    checks: IndexLists


class TannerGraph:
    """The bipartite graph of a parity-check matrix, as lists of indices.

    Edges are numbered check by check. The state of a decoder has a row for the prior of each variable, one for the message of
    each edge from its check to its variable, and one of zeros, which fills up shorter lists.
    """

    def __init__(self, H: Any, layered: bool) -> None:  # noqa: N803
        self.check_lists, self.variables = read_matrix(H)
        self.checks, self.edges = len(self.check_lists.lengths), len(self.check_lists.indices)
        self.checks_of_edges, edge_variables = self.check_lists.rows, self.check_lists.indices
        # Of each variable: the rows of its prior, then of its messages.
        owners = torch.cat([torch.arange(self.variables), edge_variables])
        self.variable_rows = IndexLists.from_entries(owners, torch.arange(self.variables + self.edges), self.variables)
        self.edge_places = self.variable_rows.indices.argsort()[self.variables :]
        self.rows = self._matrix(self.variable_rows.offsets[:-1], self.variable_rows.offsets[1:])
        members = self._independent_checks() if layered else [torch.arange(self.checks)]
        self.order = torch.cat(members) if layered else None
        self.layers = [self._layer(checks) for checks in members]

    def _matrix(self, begin: Tensor, end: Tensor) -> Tensor:
        """Return a line of row numbers for each range of the variables' lists, filled up with the row of zeros."""
        width = max(int((end - begin).max()), 1)
        places = begin[:, None] + torch.arange(width)
        rows = self.variable_rows.indices[places.clamp(max=len(self.variable_rows.indices) - 1)]
        return rows.masked_fill(places >= end[:, None], self.variables + self.edges)

    def _independent_checks(self) -> list[Tensor]:
        """Put each check into the first layer in which no check shares a variable with it."""
        used: list[set[int]] = []
        layers: list[list[int]] = []
        for check, variables in enumerate(self.check_lists.indices.split(self.check_lists.lengths.tolist())):
            members = set(variables.tolist())
            place = next((i for i, taken in enumerate(used) if not taken & members), len(used))
            if place == len(used):
                used.append(set())
                layers.append([])
            used[place] |= members
            layers[place].append(check)
        return [torch.tensor(layer) for layer in layers]

    def _layer(self, checks: Tensor) -> Layer:
        edges = torch.cat([torch.arange(*self.check_lists.offsets[check : check + 2].tolist()) for check in checks])
        variables, places = self.check_lists.indices[edges], self.edge_places[edges]
        before = self._matrix(self.variable_rows.offsets[variables], places)
        behind = self._matrix(places + 1, self.variable_rows.offsets[variables + 1]).flip(1)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), self.check_lists.lengths[checks].cumsum(0)])
        return Layer(edges, before, behind, IndexLists(offsets, torch.arange(len(edges))))

    def struct(self) -> _CodeStruct:
        """Return the pointers for the kernel."""
        lists = self.check_lists, self.variable_rows
        tensors = [*(tensor for each in lists for tensor in (each.offsets, each.indices)), self.order]
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        return _CodeStruct(self.checks, self.variables, self.edges, *pointers)


def read_matrix(H: Any) -> tuple[IndexLists, int]:  # noqa: N803
    """Return the columns in each row of a parity-check matrix, and its number of columns."""
    if not (isinstance(H, Tensor) or hasattr(H, "tocsr")):
        H = torch.as_tensor(H)  # noqa: N806
    if len(H.shape) != 2 or 0 in H.shape:
        raise ValueError(f"a parity-check matrix has rows and columns, got shape {tuple(H.shape)}")
    return IndexLists.read(H), H.shape[1]


_POINTERS = ("check_offsets", "edge_variables", "variable_offsets", "variable_rows", "order")


class _CodeStruct(ctypes.Structure):
    """BoolitCode of graphs.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("checks", "variables", "edges")),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    ]


class _DecodingStruct(ctypes.Structure):
    """BoolitDecoding of graphs.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("threads", "is_double", "kind", "early_stop")),
        *((name, ctypes.c_int64) for name in ("shots", "iterations")),
        *(("channel", ctypes.c_void_p), ("channel_stride", ctypes.c_int64)),
        *(("syndrome", ctypes.c_void_p), ("syndrome_stride", ctypes.c_int64)),
        *(("weights", ctypes.c_void_p), ("iteration_stride", ctypes.c_int64), ("edge_stride", ctypes.c_int64)),
        *(("offset", ctypes.c_double), ("damping", ctypes.c_double)),
        *((name, ctypes.c_void_p) for name in ("memory", "logits", "bits", "converged", "rounds")),
    ]
