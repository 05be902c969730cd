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

_BATCH = 3
# Sides of images, sequences and volumes to try for a model that is converted without an example.
_SIDES = {"1": (64, 16, 256, 1024, 16000), "2": (32, 28, 64, 224, 16, 8, 96, 128, 256), "3": (16, 32, 8, 64)}
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
    """A call of a module or a function, one of the tensors that a call returned, or a tensor that no call made.

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
    """Run the model, a private copy that gets hooks, and record its calls.

    The calls of torch's and boolit's layers and of ``leaves`` are recorded as a whole. Without an example, likely ones are tried.
    """
    with undisturbed(model):
        example = _guess_example(model) if example is None else example
        try:
            with _Recorder(leaves) as recorder, recorder.hooked(model):
                result = run(model, example)
        except Exception as error:
            advice = "give a tensor, a tuple of positional arguments or a dict of keyword arguments"
            raise ValueError(f"{type(model).__name__} does not run on the example: {first_line(error)}; {advice}") from error
    return Trace(recorder.nodes, recorder.nodes_of(result), recorder.functions)


def _guess_example(model: nn.Module) -> tuple[Tensor, ...]:
    like = next(model.parameters(), torch.empty(0))
    for example in _likely_examples(model):
        example = example.to(like.device) if example.dtype == torch.long else example.to(like)
        with suppress(Exception):
            if next(tensors(run(model, (example,)))).shape[:1] == (_BATCH,):
                return (example,)
    raise ValueError(
        f"cannot tell what {type(model).__name__} reads; pass example=… (a tensor, a tuple of positional arguments or a "
        "dict of keyword arguments)"
    )


def _likely_examples(model: nn.Module) -> Iterator[Tensor]:
    """Yield inputs that suit the first layer of the model."""
    first = next((layer for layer in model.modules() if widths(layer) or isinstance(layer, nn.Embedding)), None)
    if isinstance(first, nn.Embedding):
        yield from (torch.ones(_BATCH, length, dtype=torch.long) for length in (8, 1, 64))
    elif first is not None:
        width = next(iter(widths(first).values()))
        spatial = re.search(r"([123])d$", type(first).__name__)
        images = [(width, *[side] * int(spatial[1])) for side in _SIDES[spatial[1]]] if spatial else []
        generator = torch.Generator().manual_seed(0)
        for shape in (*images, (width,), (7, width), (width, 7)):
            yield torch.randn(_BATCH, *shape, generator=generator)


def first_line(error: Exception) -> str:
    """Return the first line of the message, or the class of an error without one."""
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


class _Frame(NamedTuple):
    """A running module: its path, whether it is or is inside of a leaf, the node of its call, and its own calls by name."""

    path: str
    in_leaf: bool
    node: Node
    counts: Counter[str]


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
        self._stack = [_Frame("", False, Node(""), Counter())]

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
        inside = self._stack[-1].in_leaf
        node = (
            Node(path)
            if inside
            else Node(path, self.nodes_of((args, kwargs)), module, self._place(path), (module, args, kwargs))
        )
        self._stack.append(_Frame(path, inside or self._is_leaf(module), node, Counter()))

    def _leave(self, _module: nn.Module, _args: Any, result: Any) -> None:
        frame = self._stack.pop()
        if frame.in_leaf and not self._stack[-1].in_leaf:
            self._record(frame.node, result)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        self.functions[self._stack[-1].path].add(name)
        if self._stack[-1].in_leaf:
            return func(*args, **kwargs)
        inputs = self.nodes_of((args, kwargs))  # before the call, which may be in-place
        result = func(*args, **kwargs)
        changed = args[0] if func is Tensor.__setitem__ else result
        if any(True for _ in tensors(changed)):
            self._record(Node(name or str(func), inputs, None, self._place(name), (func, args, kwargs)), changed)
        return result

    def _place(self, name: str) -> Place:
        counts = self._stack[-1].counts
        counts[name] += 1
        return Place(self._stack[-1].path, name, counts[name] - 1)

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
