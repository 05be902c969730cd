"""Record the calls of a model's layers and of torch's functions while the model runs on an example."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from boolit.nn.conv1x1 import Conv1x1
from boolit.nn.conversion.layers import RESIZABLE, behaves_like_its_kind, is_linear_alike, widths
from boolit.nn.conversion.sites import ActivationChoice, PairGate, function_name
from boolit.nn.gates import Activation

_BATCH = 3
# Sizes of images, sequences and volumes to try for a model that is converted without an example.
_SIDES = {1: (64, 16, 256, 1024, 16000), 2: (32, 28, 64, 224, 16, 8, 96, 128, 256), 3: (16, 32, 8, 64)}


_CONTAINERS = (
    *(nn.Sequential, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder),
    *(nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
)


class UntraceableError(ValueError):
    """The model does not run on the example, or no example could be guessed."""


def trace(model: nn.Module, example: Any, choice: ActivationChoice) -> fx.Graph:
    """Run the model once and return the graph of its calls, with the shape of every tensor in ``meta``.

    Only instances are changed while the model runs, so pass a private copy of it.
    """
    recorder = _Recorder(model, choice)
    with undisturbed(model), recorder.attached():
        for i, tensor in enumerate(tensors(example)):
            recorder.name(tensor, recorder.graph.placeholder(f"input_{i}"))
        try:
            with recorder:
                result = run(model, example)
        except Exception as error:
            advice = "give a tensor, a tuple of positional arguments or a dict of keyword arguments"
            raise UntraceableError(
                f"{type(model).__name__} does not run on the example: {first_line(error)}; {advice}"
            ) from error
    recorder.graph.output(recorder.argument(result))
    return recorder.graph


def guess_example(model: nn.Module) -> tuple[Tensor, ...]:
    """Return an input that the model accepts, judging by its first layer; each required argument gets the same tensor."""
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(1 for each in parameters if each.kind in kinds and each.default is each.empty) or 1
    generator = torch.Generator().manual_seed(0)
    for shape, embeds in _likely_shapes(model):
        like = next(model.parameters(), torch.empty(0))
        x = torch.randn(shape, generator=generator).to(like)
        example = (torch.ones_like(x, dtype=torch.long) if embeds else x,) * count
        with undisturbed(model):
            try:
                results = [*tensors(run(model, example))]
            except Exception:
                continue
        if results and results[0].shape[:1] == (_BATCH,):
            return example
    raise UntraceableError(
        f"cannot tell what {type(model).__name__} reads; pass example=… (a tensor, a tuple of positional arguments or a "
        "dict of keyword arguments)"
    )


def _likely_shapes(model: nn.Module) -> Iterator[tuple[tuple[int, ...], bool]]:
    for layer in model.modules():
        spatial = len(getattr(layer, "kernel_size", ())) if isinstance(layer, RESIZABLE) else 0
        if isinstance(layer, (nn.BatchNorm2d, nn.InstanceNorm2d)):
            spatial = 2
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            yield from (((_BATCH, length), True) for length in (8, 1, 64))
            return
        if isinstance(layer, (nn.MultiheadAttention, *RESIZABLE)) or is_linear_alike(layer):
            width = layer.embed_dim if isinstance(layer, nn.MultiheadAttention) else next(iter(widths(layer).values()))
            if spatial:
                yield from (((_BATCH, width, *[side] * spatial), False) for side in _SIDES[spatial])
            yield from (((_BATCH, width), False), ((_BATCH, 7, width), False), ((_BATCH, width, 7), False))
            return


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def run(model: nn.Module, example: Any) -> Any:
    """Call the model on a tensor, a tuple of positional arguments or a mapping of keyword arguments."""
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, (tuple, list)) else model(example)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Use the model in evaluation mode without gradients, then restore its modes, buffers and torch's generator."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {parameter.device.index or 0 for parameter in model.parameters() if parameter.is_cuda}
    with torch.random.fork_rng(sorted(devices)), torch.no_grad():
        try:
            model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training
            for buffer, value in buffers:
                buffer.copy_(value)


class _Recorder(TorchFunctionMode):
    """Records every call of a leaf module and, outside of these, of a function of torch.

    Each module of the model gets an instance attribute ``forward``. Unlike a patch of ``nn.Module.__call__``, and unlike
    torch.fx, which makes one, this does not affect models that run in other threads.
    """

    def __init__(self, model: nn.Module, choice: ActivationChoice) -> None:
        super().__init__()
        self.graph, self._model, self._choice = fx.Graph(), model, choice
        self._stored = {id(value): path for path, value in (*model.named_buffers(), *model.named_parameters())}
        self._nodes: dict[int, tuple[fx.Node, Tensor]] = {}  # holds the tensor so that no other tensor gets its id
        self._stack: dict[str, tuple[str, type]] = {}
        self._calls: Counter[str] = Counter()
        self._leaf: set[str] | None = None  # functions called inside the current leaf module

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Route the forward of every module through `call`."""
        replaced: list[tuple[nn.Module, Any]] = []
        try:
            for path, module in self._model.named_modules():
                replaced.append((module, module.__dict__.get("forward")))
                module.forward = self._wrap(path, module, module.forward)
            yield
        finally:
            for module, forward in replaced:
                module.__dict__.pop("forward", None)
                if forward is not None:
                    module.forward = forward

    def _wrap(self, path: str, module: nn.Module, forward: Any) -> Any:
        @wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(path, module, forward, args, kwargs)

        return call

    def _is_leaf(self, module: nn.Module) -> bool:
        boolit = isinstance(module, (Activation, PairGate, Conv1x1))
        torchs = type(module).__module__.startswith("torch.nn.") and not isinstance(module, _CONTAINERS)
        return boolit or torchs or self._choice.takes_module(module)

    def _call(self, path: str, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self._leaf is not None:
            return forward(*args, **kwargs)
        key = f"{path}@{self._calls[path]}" if self._calls[path] else path
        self._calls[path] += 1
        self._stack |= {key: (path, type(module))} if path else {}
        stack, given = dict(self._stack), (self.argument(args), self.argument(kwargs))
        # Subclasses of torch's layers, and classes with the parameters of a linear layer, may compute anything.
        doubtful = is_linear_alike(module) or (isinstance(module, RESIZABLE) and type(module) not in RESIZABLE)
        self._leaf = set() if self._is_leaf(module) and not doubtful else None
        last = self.graph._root.prev
        try:
            result = forward(*args, **kwargs)
            inside, is_leaf = self._leaf, self._leaf is not None
            if doubtful and behaves_like_its_kind(module, args, kwargs, result):
                inside, is_leaf = self._forget(last), True
            if is_leaf:
                node = self.graph.create_node("call_module", path, *given)
                node.meta |= {"nn_module_stack": stack, "inside": inside}
                self.name(result, node)
        finally:
            self._stack.pop(key, None)
            self._leaf = None
        return result

    def _forget(self, last: fx.Node) -> set[str]:
        """Erase the nodes after ``last`` and return the names of their calls."""
        erased = [*itertools.takewhile(lambda node: node is not last, reversed(self.graph.nodes))]
        self._nodes = {key: pair for key, pair in self._nodes.items() if pair[0] not in erased}
        for node in erased:
            self.graph.erase_node(node)
        return {str(node.target) for node in erased}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if self._leaf is not None:
            self._leaf.add(name)
            return func(*args, **kwargs)
        arguments = self.argument(args), self.argument(kwargs)  # before the call, which may be in-place
        result = func(*args, **kwargs)
        changed = args[0] if func is Tensor.__setitem__ else result
        if any(True for _ in tensors(changed)):
            node = self.graph.create_node("call_method", name or str(func), *arguments)
            # torch.compile does not show calls such as torch.relu_ to a mode.
            hidden = func.__name__.endswith("_") and getattr(Tensor, func.__name__, None) is not func
            node.meta |= {"nn_module_stack": dict(self._stack), "hidden": hidden}
            self.name(changed, node)
        return result

    def argument(self, value: Any) -> Any:
        """Return a value as an argument of a node."""
        if isinstance(value, Tensor):
            return self._node(value)
        if isinstance(value, slice):
            return slice(*map(self.argument, (value.start, value.stop, value.step)))
        if isinstance(value, (bool, int, float, str, type(...))):
            return value
        items = {str(key): self.argument(item) for key, item in _items(value)}
        if isinstance(value, Mapping):
            return items
        kind = type(value) if type(value) in (list, tuple) else tuple
        return kind(items.values()) if items or isinstance(value, (list, tuple)) else None

    def _node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            path = self._stored.get(id(tensor))
            stored = path is not None and self.graph.create_node("get_attr", path)
            self.name(tensor, stored or self.graph.placeholder(f"constant_{len(self._nodes)}"))
        return self._nodes[id(tensor)][0]

    def name(self, result: Any, node: fx.Node) -> None:
        """Record which node made a tensor, or the tensors of a collection."""
        if isinstance(result, Tensor):
            node.meta["shape"] = tuple(result.shape)
            self._nodes[id(result)] = node, result
        for key, item in _items(result):
            if any(True for _ in tensors(item)):
                part = self.graph.call_function(operator.getitem, (node, key))
                part.meta["nn_module_stack"] = dict(self._stack)
                self.name(item, part)


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested lists, tuples, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    for _, item in _items(value):
        yield from tensors(item)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    value = vars(value) if dataclasses.is_dataclass(value) and not isinstance(value, (type, Mapping)) else value
    return value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
