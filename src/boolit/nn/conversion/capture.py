"""A model as a graph of calls: recorded while it runs on an example, or traced by torch.fx without one."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from boolit.nn.conv1x1 import Conv1x1, ConvTranspose1x1
from boolit.nn.conversion.layers import RESIZABLE, does_what_it_looks_like, is_linear_alike
from boolit.nn.conversion.sites import TRANSFORMER_LAYERS, ActivationChoice, function_name
from boolit.nn.gates import Activation


class UntraceableError(ValueError):
    """torch.fx cannot follow the model's forward."""


class _Tracer(fx.Tracer):
    """Goes into everything but torch's layers and the activations."""

    def __init__(self, choice: ActivationChoice) -> None:
        super().__init__()
        self._choice = choice

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, (Activation, Conv1x1, ConvTranspose1x1, *TRANSFORMER_LAYERS)) or self._choice.takes_module(m)
        return whole or hasattr(m, "nf") or super().is_leaf_module(m, module_qualified_name)


def capture(model: nn.Module, example: Any, choice: ActivationChoice) -> fx.Graph | None:
    """The graph of a model, recorded or traced; None for one that is itself something neither goes into."""
    tracer = _Tracer(choice)
    if tracer.is_leaf_module(model, ""):
        return None
    return _trace(model, tracer) if example is None else _record(model, example, tracer)


def _trace(model: nn.Module, tracer: _Tracer) -> fx.Graph:
    """Arguments with plain defaults are taken to have them."""
    given = {name: parameter.default for name, parameter in inspect.signature(model.forward).parameters.items()}
    plain = {name: value for name, value in given.items() if value is None or isinstance(value, (bool, int, float, str))}
    try:
        return tracer.trace(model, concrete_args=plain)
    except Exception as error:
        place = "".join([f" in {path}" for path, _ in tracer.module_stack.values()][-1:])
        raise UntraceableError(
            f"torch.fx cannot trace {type(model).__name__}{place}: {first_line(error)}; pass example=… (a tensor, a tuple or a "
            "dict of keyword arguments), or convert the submodules that hold the activations one by one"
        ) from error


def first_line(error: Exception) -> str:
    """What an error says, without what follows."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def run(model: nn.Module, example: Any) -> Any:
    """What the model makes of an example: a tensor, positional arguments in a tuple, or keyword arguments in a mapping."""
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, (tuple, list)) else model(example)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model in evaluation and without gradients; its modes, buffers and torch's generator are put back."""
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


def _record(model: nn.Module, example: Any, tracer: _Tracer) -> fx.Graph:
    """The graph of one run on the example, with the shape of every tensor in ``meta``."""
    recorder = _Recorder(model, tracer)
    call = nn.Module.__call__
    with undisturbed(model):
        for i, tensor in enumerate(tensors(example)):
            recorder.name(tensor, recorder.graph.placeholder(f"input_{i}"))
        try:
            nn.Module.__call__ = lambda module, *args, **kwargs: recorder.call(call, module, args, kwargs)  # type: ignore[method-assign]
            with recorder:
                result = run(model, example)
        except Exception as error:
            advice = "give a tensor, a tuple of positional arguments or a dict of keyword arguments"
            raise ValueError(f"{type(model).__name__} does not run on the example: {first_line(error)}; {advice}") from error
        finally:
            nn.Module.__call__ = call  # type: ignore[method-assign]
    recorder.graph.output(recorder.argument(result))
    return recorder.graph


class _Recorder(TorchFunctionMode):
    """Notes every call of a leaf module and, outside of these, of a function of torch."""

    def __init__(self, model: nn.Module, tracer: _Tracer) -> None:
        super().__init__()
        self.graph, self._tracer = fx.Graph(), tracer
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stored = {id(value): path for path, value in (*model.named_buffers(), *model.named_parameters())}
        self._nodes: dict[int, tuple[fx.Node, Tensor]] = {}  # with the tensor, so that no other takes its id
        self._stack: dict[str, tuple[str, type]] = {}
        self._calls: Counter[str] = Counter()
        self._leaf: set[str] | None = None  # the functions called inside a module that is taken as a whole

    def call(self, call: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Calls a module; one that is not part of the model counts as code of the module that calls it."""
        path = self._paths.get(id(module))
        if path is None or self._leaf is not None:
            return call(module, *args, **kwargs)
        key = f"{path}@{self._calls[path]}" if self._calls[path] else path
        self._calls[path] += 1
        self._stack |= {key: (path, type(module))} if path else {}
        stack, given = dict(self._stack), (self.argument(args), self.argument(kwargs))
        doubtful = is_linear_alike(module) or (isinstance(module, RESIZABLE) and type(module) not in RESIZABLE)
        self._leaf = set() if self._tracer.is_leaf_module(module, path) and not doubtful else None
        last = self.graph._root.prev
        try:
            result = call(module, *args, **kwargs)
            inside, whole = self._leaf, self._leaf is not None
            if doubtful and does_what_it_looks_like(module, args, kwargs, result):
                inside, whole = self._forget(last), True
            if whole:
                node = self.graph.create_node("call_module", path, *given)
                node.meta |= {"nn_module_stack": stack, "inside": inside}
                self.name(result, node)
        finally:
            self._stack.pop(key, None)
            self._leaf = None
        return result

    def _forget(self, last: fx.Node) -> set[str]:
        """Takes back what was noted after a node; returns the names of the calls."""
        gone = [*itertools.takewhile(lambda node: node is not last, reversed(self.graph.nodes))]
        self._nodes = {key: pair for key, pair in self._nodes.items() if pair[0] not in gone}
        for node in gone:
            self.graph.erase_node(node)
        return {str(node.target) for node in gone}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if self._leaf is not None:
            self._leaf.add(name)
            return func(*args, **kwargs)
        arguments = self.argument(args), self.argument(kwargs)  # before the call, which may change one of them
        result = func(*args, **kwargs)
        changed = args[0] if func is Tensor.__setitem__ else result
        if any(True for _ in tensors(changed)):
            node = self.graph.create_node("call_method", name or str(func), *arguments)
            node.meta["nn_module_stack"] = dict(self._stack)
            self.name(changed, node)
        return result

    def argument(self, value: Any) -> Any:
        """A value as an argument of a node."""
        if isinstance(value, Tensor):
            return self._node(value)
        if isinstance(value, slice):
            return slice(*map(self.argument, (value.start, value.stop, value.step)))
        if isinstance(value, (bool, int, float, str, type(...))):
            return value
        inside = {str(key): self.argument(item) for key, item in _items(value)}
        if isinstance(value, Mapping):
            return inside
        kind = type(value) if type(value) in (list, tuple) else tuple
        return kind(inside.values()) if inside or isinstance(value, (list, tuple)) else None

    def _node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            path = self._stored.get(id(tensor))
            stored = path is not None and self.graph.create_node("get_attr", path)
            self.name(tensor, stored or self.graph.placeholder(f"constant_{len(self._nodes)}"))
        return self._nodes[id(tensor)][0]

    def name(self, result: Any, node: fx.Node) -> None:
        """Says which node made a tensor, or several."""
        if isinstance(result, Tensor):
            node.meta["shape"] = tuple(result.shape)
            self._nodes[id(result)] = node, result
        for key, item in _items(result):
            if any(True for _ in tensors(item)):
                part = self.graph.call_function(operator.getitem, (node, key))
                part.meta["nn_module_stack"] = dict(self._stack)
                self.name(item, part)


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    for _, item in _items(value):
        yield from tensors(item)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    value = vars(value) if dataclasses.is_dataclass(value) and not isinstance(value, (type, Mapping)) else value
    return value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
