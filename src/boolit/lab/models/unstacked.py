"""Networks that are run one by one, each a plain torch network, instead of as products over all runs at once.

Each run has one thread. Threads never wait for each other inside an operation, and no sum is split among threads, so a run's
numbers depend neither on its cohort nor on the number of threads, except for rounding: where a run's weights begin in memory
differs between cohorts, and libraries may take that into account. Only a cohort with fewer runs than threads gives each run
several threads.

Convolutions lose nothing by it. CPU time of forward and backward, medians on one AVX-512 core, batch 256, six layers with
batch norm of the 15k CNNs on MNIST, ReLU and OR_AIL: one run with channels last 137 and 144 ms, with channels first (as
``nn.Conv2d`` gets them) 176 and 232, unfolded into matrix products 509 and 341; two runs with channels last 269 and 270,
channels first 323 and 429, as groups of one convolution 640 and 564, unfolded 1114 and 755. Groups with channels last are as
fast (280 ms against 305 one by one, two runs with ReLU), but share their threads among all runs.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from boolit.lab.common.parallel import thread_pool
from boolit.lab.common.random import keys
from boolit.lab.models.base import Family, Shape, Stacked
from boolit.lab.models.layers import StackedDropout, draw_first_weights

T = TypeVar("T")
Limit = Callable[[nn.Module], float | None]
PIECE = 256  # samples per run and call without gradients, so that an evaluation needs no more memory than training


class UnstackedFamily(Family):
    """A family whose networks are plain torch modules, run one by one."""

    @abstractmethod
    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        """One plain network."""

    def weight_limit(self, layer: nn.Module) -> float | None:  # noqa: ARG002
        """The bound of a layer's first weights, whose bias then begins at 0; None for torch's own initialisation."""
        return None

    def build(self, runs: int, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that `initialise` replaces
            return UnstackedRuns(runs, self.network(inputs, outputs, widths, spec), self.weight_limit)


class UnstackedRuns(Stacked):
    """Several runs of a plain network: its parameters and buffers under its own names, with a leading axis of runs.

    Shape: the network's, with a leading axis of runs.

    Example:
        >>> networks = UnstackedRuns(3, nn.Sequential(nn.Linear(4, 2)))
        >>> networks.initialise([1, 2, 3])
        >>> networks(torch.zeros(3, 5, 4)).shape, networks.get_parameter("0.weight").shape
        (torch.Size([3, 5, 2]), torch.Size([3, 2, 4]))
    """

    def __init__(self, runs: int, network: nn.Module, weight_limit: Limit = lambda _: None) -> None:
        super().__init__()
        self._weight_limit = weight_limit
        # In a tuple, as their parameters are not this module's; one per run, as each call sets that run's parameters.
        self._networks = tuple(copy.deepcopy(network).to("meta") for _ in range(runs))
        self._dropouts = [name for name, layer in network.named_modules() if isinstance(layer, SingleRunDropout)]
        for name, child in _stack(runs, network).named_children():
            self.add_module(name, child)

    def initialise(self, seeds: Sequence[int]) -> None:
        for name, layer in self.named_modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                draw_first_weights(layer.weight, layer.bias, seeds, name, self._weight_limit(layer))
        for name in self._dropouts:
            cast(SingleRunDropout, self.get_submodule(name)).run_keys.copy_(keys(seeds, "dropout", name).unsqueeze(1))

    def train(self, mode: bool = True) -> UnstackedRuns:
        for network in self._networks:
            network.train(mode)
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        self._set_step()
        if torch.is_grad_enabled() and len(self._networks) == 1:
            # A plain graph: it can be compiled, and DDP sends its first gradients while others are computed.
            return self._call(0, x.squeeze(0), *(values.squeeze(0) for values in self.parameters())).unsqueeze(0)
        if torch.is_grad_enabled():
            return cast(Tensor, _Runs.apply(self._call, x, *self.parameters()))  # type: ignore[no-untyped-call]
        size = x.shape[1] if self.training else PIECE
        parameters = list(self.parameters())

        def outputs(run: int) -> Tensor:
            own = [values[run] for values in parameters]
            with torch.no_grad():
                return torch.cat([self._call(run, piece, *own) for piece in x[run].split(size)])

        return torch.stack(_each(x.shape[0], outputs, x.device))

    def _set_step(self) -> None:
        """Copies the step from this module's dropouts, where the trainer sets it, to the networks' own."""
        for name in self._dropouts:
            step = cast(SingleRunDropout, self.get_submodule(name)).step
            for network in self._networks:
                cast(SingleRunDropout, network.get_submodule(name)).step = step

    def _call(self, run: int, x: Tensor, *parameters: Tensor) -> Tensor:
        names = (name for name, _ in self.named_parameters())
        own = dict(zip(names, parameters, strict=True)) | {name: values[run] for name, values in self.named_buffers()}
        result: Tensor = functional_call(self._networks[run], own, (x,))
        return result


class SingleRunDropout(StackedDropout):
    """The dropout of one run, in a network of `UnstackedRuns`.

    Shape: any, unchanged.
    """

    def __init__(self, p: float) -> None:
        super().__init__(1, p)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unsqueeze(0)).squeeze(0)


class _Runs(torch.autograd.Function):
    """Every run's call as its own graph, so that several backward passes can run at a time."""

    @staticmethod
    def forward(ctx: Any, call: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        needed = ctx.needs_input_grad[1:]

        def graph(run: int) -> tuple[Tensor, list[Tensor]]:
            own = [values[run].detach().requires_grad_(need) for values, need in zip(inputs, needed, strict=True)]
            with torch.enable_grad():
                return call(run, *own), [values for values, need in zip(own, needed, strict=True) if need]

        ctx.graphs = _each(inputs[0].shape[0], graph, inputs[0].device)
        return torch.stack([output.detach() for output, _ in ctx.graphs])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        graphs, ctx.graphs = ctx.graphs, None

        def gradients(run: int) -> tuple[Tensor, ...]:
            (output, own), graphs[run] = graphs[run], None
            return cast("tuple[Tensor, ...]", torch.autograd.grad(output, own, gradient[run]))

        found = iter(map(torch.stack, zip(*_each(len(graphs), gradients, gradient.device), strict=True)))
        return None, *(next(found) if need else None for need in ctx.needs_input_grad[1:])


def _stack(runs: int, network: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers have a leading axis of runs; it has the names and layers, but cannot be called."""
    stacked = copy.deepcopy(network)
    for layer in stacked.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            layer.register_parameter(name, nn.Parameter(_repeat(runs, parameter.detach())))
        for name, buffer in layer.named_buffers(recurse=False):
            persistent = name not in layer._non_persistent_buffers_set
            layer.register_buffer(name, _repeat(runs, buffer), persistent=persistent)
    return stacked


def _repeat(runs: int, values: Tensor) -> Tensor:
    return values.expand(runs, *values.shape).clone()


def _each(runs: int, work: Callable[[int], T], device: torch.device) -> list[T]:
    """The results of some work for every run: on the CPU as many at a time as there are threads, elsewhere one by one."""
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    if min(runs, threads) == 1:
        return [work(run) for run in range(runs)]
    with thread_pool(min(runs, threads), max(1, threads // runs)) as pool:
        return list(pool.map(work, range(runs)))
