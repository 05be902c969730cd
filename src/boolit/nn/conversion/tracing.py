"""Run a model on an example, and record the calls of its layers and of torch's functions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from boolit.nn.conv1x1 import Conv1x1
from boolit.nn.conversion.layers import is_conv1d, widths
from boolit.nn.gates import Activation

_SIDES = (32, 28, 64, 224, 16, 8, 96, 128, 256)  # of images to try for a model that is converted without an example
_FORMS = "a tensor, a tuple of positional arguments or a dict of keyword arguments"
_CONTAINERS = (
    *(nn.Sequential, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder),
    *(nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
)


class Place(NamedTuple):
    """Position of a call: the module whose forward makes it, the name, and its number among the calls of that name."""

    owner: str
    call: str
    number: int


@dataclass(eq=False)
class Node:
    """A node of the graph: a module or function call, a tensor returned by a call, or a tensor that no call returned.

    ``inputs`` are the nodes of all tensors among the arguments, ``call`` is the function or module with its arguments. The
    node of a returned tensor has the call as its only input and the ``key`` of the tensor in the result.
    """

    name: str
    inputs: Sequence[Node] = ()
    module: nn.Module | None = None
    place: Place | None = None
    call: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
    key: Any = None
    shape: tuple[int, ...] = ()  # of a tensor
    users: list[Node] = field(default_factory=list)

    def argument(self, position: int, name: str, default: object) -> Any:
        """Return an argument of a function that was given by position or by name."""
        _, args, kwargs = self.call or (None, (), {})
        return args[position] if len(args) > position else kwargs.get(name, default)


class Trace(NamedTuple):
    """The calls of a model, the nodes of its outputs, and the names of the functions that each module calls itself."""

    nodes: list[Node]
    outputs: list[Node]
    functions: dict[str, set[str]]


def trace(model: nn.Module, example: Any, leaves: Set[nn.Module]) -> Trace:
    """Run the model, a private copy that gets hooks, and record its calls; without an example, on a guessed one.

    The calls of torch's and boolit's layers and of ``leaves`` are recorded as a whole.
    """
    with undisturbed(model):
        example = _guess_example(model) if example is None else example
        with _Recorder(leaves) as recorder, recorder.hooked(model):
            result = run(model, example)
    return Trace(recorder.nodes, recorder.nodes_of(result), recorder.functions)


def _guess_example(model: nn.Module) -> Tensor:
    """Return an input that suits the first layer and that the model accepts."""
    layer = next((layer for layer in model.modules() if widths(layer)), nn.Identity())
    width, dims = next(iter(widths(layer).values()), 0), len(getattr(layer, "kernel_size", ()))
    images = [(width, *[side] * dims) for side in _SIDES if dims and side**dims <= 2**18]
    generator, like = torch.Generator().manual_seed(0), next(model.parameters(), torch.empty(0))
    for shape in (*images, (width,), (7, width), (width, 7)):
        example = torch.randn(3, *shape, generator=generator).to(like)
        with suppress(ValueError):
            if next(tensors(run(model, example))).shape[:1] == (3,):
                return example
    raise ValueError(f"cannot tell what {type(model).__name__} reads; pass example=…, {_FORMS}")


def run(model: nn.Module, example: Any, state: str = "") -> Any:
    """Call the model on a tensor, a tuple of positional arguments or a mapping of keyword arguments."""
    try:
        if isinstance(example, Mapping):
            return model(**example)
        return model(*example) if isinstance(example, (tuple, list)) else model(example)
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        name = f"{state}{type(model).__name__}"
        raise ValueError(f"{name} does not run on the example: {reason}; the example is {_FORMS}") from error


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


def function_name(function: Any) -> str:
    """Return the name of a function of torch or Python: ``add`` for ``__radd__`` and for the method ``add_``.

    In-place functions such as ``torch.relu_`` keep their underscore, since torch.compile hides them from a mode.
    """
    package = str(getattr(function, "__module__", None) or "torch").split(".")[0]
    name = str(getattr(function, "__name__", ""))
    if name.startswith("__"):
        name = re.sub(r"^[ri](?=(add|sub|mul|div|truediv|floordiv|pow|and|or|xor)$)", "", name.strip("_"))
    if getattr(Tensor, name, None) is function:
        name = name.removesuffix("_")
    return name if package in ("torch", "_operator", "builtins", "math") else ""


class _Recorder(TorchFunctionMode):
    """Records every call of a leaf module and, outside of these, of a function of torch.

    The modules of the model get hooks. Unlike a patch of ``nn.Module.__call__``, which torch.fx makes, this does not affect
    models that run in other threads.
    """

    def __init__(self, leaves: Set[nn.Module]) -> None:
        super().__init__()
        self.nodes, self._leaves = list[Node](), leaves
        self.functions: dict[str, set[str]] = defaultdict(set)
        self._made: dict[int, tuple[Node, Tensor]] = {}  # holds the tensor so that no other tensor gets its id
        # The calls that are running, whether each is inside of a leaf, and how often it has called each name.
        self._stack = [(Node(""), False, Counter[str]())]

    @contextmanager
    def hooked(self, model: nn.Module) -> Iterator[None]:
        """Observe the calls of all modules of the model."""
        with ExitStack() as handles:
            for path, module in model.named_modules():
                handles.enter_context(module.register_forward_pre_hook(partial(self._enter, path), with_kwargs=True))
                handles.enter_context(module.register_forward_hook(self._leave))
            yield

    def _is_leaf(self, module: nn.Module) -> bool:
        torch_class = next(kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn."))
        inherited = type(module).forward is torch_class.forward and torch_class not in _CONTAINERS  # type: ignore[attr-defined]
        ours = isinstance(module, (Activation, Conv1x1))
        return inherited or ours or is_conv1d(module) or module in self._leaves

    def _enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        inside = self._stack[-1][1]
        node = Node(path)
        if not inside:
            node = Node(path, self.nodes_of((args, kwargs)), module, self._place(path), (module, args, kwargs))
        self._stack.append((node, inside or self._is_leaf(module), Counter()))

    def _leave(self, _module: nn.Module, _args: Any, result: Any) -> None:
        node, in_leaf, _ = self._stack.pop()
        if in_leaf and not self._stack[-1][1]:
            self._record(node, result)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        caller, in_leaf, _ = self._stack[-1]
        self.functions[caller.name].add(name)
        if in_leaf:
            return func(*args, **kwargs)
        inputs = self.nodes_of((args, kwargs))  # before the call, which may be in-place
        result = func(*args, **kwargs)
        changed = args[0] if func is Tensor.__setitem__ else result
        if any(True for _ in tensors(changed)):
            self._record(Node(name or str(func), inputs, None, self._place(name), (func, args, kwargs)), changed)
        return result

    def _place(self, name: str) -> Place:
        caller, _, counts = self._stack[-1]
        counts[name] += 1
        return Place(caller.name, name, counts[name] - 1)

    def _record(self, node: Node, result: Any) -> None:
        """Add a node that made a tensor, or the tensors of a collection."""
        self.nodes.append(node)
        for source in node.inputs:
            source.users.append(node)
        if isinstance(result, Tensor):
            node.shape = tuple(result.shape)
            self._made[id(result)] = node, result
        for key, item in _items(result):
            if any(True for _ in tensors(item)):
                self._record(Node("getitem", [node], key=key), item)

    def nodes_of(self, value: Any) -> list[Node]:
        """Return the nodes of all tensors in a value."""
        for tensor in tensors(value):
            if id(tensor) not in self._made:
                self._record(Node("constant"), tensor)
        return [self._made[id(tensor)][0] for tensor in tensors(value)]


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested lists, tuples, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    for _, item in _items(value):
        yield from tensors(item)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    value = vars(value) if is_dataclass(value) and not isinstance(value, (type, Mapping)) else value
    return value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
