"""Every kind of tensor torch can make without a GPU: the right numbers or one clear sentence, and no crash.

The cases run in a child process, as what they hold is a kernel that reads memory it must not: `python THIS_FILE GROUP` prints
each case's name before it runs and its outcome after.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boolit
from boolit.logic.cpu import status

Case = Callable[[], object]
Make = Callable[[], Any]
SPECS = ("or_ail", "xnor_il", "or_and_xnor_nail_d")  # kept bits, kept input, several
X = torch.arange(24, dtype=torch.float32).sub(11.3).mul(0.37).reshape(4, 6)

FREED = r"the memory of a tensor of shape .* was freed"
FLOATS = r"logits must be float32, float64, bfloat16 or float16, got torch\..*; convert them with x\.(float|dequantize)\(\)"
DENSE = r"logits must be a dense tensor, got one of layout .*; convert it with x\.to_dense\(\)"
NESTED = r"logits must be one dense tensor, got a nested one; apply the gate to x\.values\(\)"
NO_TENSOR = r"logits must be a torch\.Tensor, got .*; make one with torch\.(tensor|from_numpy)\(x\)"


class Silent(Tensor):
    """A subclass that adds nothing."""


class Listening(Tensor):
    """One that counts what it is given to."""

    calls: list[str] = []  # noqa: RUF012 (shared on purpose)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapping(Tensor):
    """One without memory of its own: it holds another tensor and sees every operator."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapping:
        made: Wrapping = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = torch.utils._pytree.tree_map_only(Wrapping, lambda wrapped: wrapped.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(Tensor, Wrapping, function(*plain[0], **plain[1]))


def freed(x: Tensor, view: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    seen = view(x.clone())
    seen.untyped_storage().resize_(0)
    return seen


def leaked(transform: Any) -> Tensor:
    inside: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        inside.append(x)
        return x.sum()

    transform(keep)(X.clone())
    return inside[0]


def distributed(x: Tensor, placement: Any) -> Tensor:
    from torch import distributed
    from torch.distributed.tensor import distribute_tensor

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    return distribute_tensor(x, distributed.init_device_mesh("cpu", (1,)), [placement])


def shards() -> Any:
    from torch.distributed.tensor import Replicate, Shard

    return Replicate(), Shard(0), Shard(1)


def fake(x: Tensor) -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x)


# ------------------------------------------------------------------------------------------------ inputs with right results

RIGHT: dict[str, Make] = {
    "plain": lambda: X.clone(),
    "float64": lambda: X.double(),
    "bfloat16": lambda: X.bfloat16(),
    "float16": lambda: X.half(),
    "parameter": lambda: nn.Parameter(X.clone()),
    "transposed": lambda: X.T.contiguous().T,
    "expanded": lambda: X[:1].expand(4, 6),
    "no rows": lambda: X[:0],
    "no channels": lambda: X[:, :0],
    "negative": lambda: torch._neg_view(X),
    "imaginary part of a conjugate": lambda: torch.complex(X, X).conj().imag,
    "zero tensor": lambda: torch._efficientzerotensor((4, 6)),
    "functional": lambda: torch._to_functional_tensor(X.clone()),
    "inference": lambda: torch.inference_mode()(X.clone)(),
    "not a leaf": lambda: (X.clone().requires_grad_() * 1)[1:],
    "subclass": lambda: X.clone().as_subclass(Silent),
    "listening subclass": lambda: X.clone().as_subclass(Listening),
    "wrapping subclass": lambda: Wrapping(X.clone()),
    "replicated": lambda: distributed(X.clone(), shards()[0]),
    "channels sharded": lambda: distributed(X.clone(), shards()[2]),
    "rows sharded": lambda: distributed(X.clone(), shards()[1]),
    "left over from grad": lambda: leaked(torch.func.grad),
}


def numbers(x: Tensor) -> Tensor:
    """What a tensor of any of these kinds holds, as an ordinary one."""
    if isinstance(x, Wrapping):
        return numbers(x.inner)
    if hasattr(x, "full_tensor"):
        return numbers(x.full_tensor())
    if torch._is_functional_tensor(x):
        torch._sync(x)
        return numbers(torch._from_functional_tensor(x))
    if "FuncTorch" in str(torch._C._dispatch_keys(x)):
        return numbers(torch._C._functorch.get_unwrapped(x))
    return (x + 0).detach().as_subclass(Tensor).clone(memory_format=torch.contiguous_format).resolve_neg()


def differentiable(x: Tensor) -> bool:
    """Whether torch can differentiate with respect to a tensor of its kind."""
    wrapped = type(x) is Wrapping or "Func" in str(torch._C._dispatch_keys(x))
    return not x.is_inference() and not wrapped


def check_right(make: Make) -> None:
    for spec in SPECS:
        module, x = boolit.activation(spec), make()
        out, expected = module(x), module(numbers(make()))
        assert torch.allclose(numbers(out).double(), expected.double(), rtol=1e-6, atol=1e-6, equal_nan=True), spec
        assert out.dtype == expected.dtype
        if not differentiable(x):
            continue
        leaf = x if x.requires_grad else x.detach().requires_grad_()
        plain = numbers(make()).requires_grad_()
        weights = torch.arange(float(expected.numel())).reshape(expected.shape).to(expected.dtype)
        (gradient,) = torch.autograd.grad(
            (module(leaf) * (distributed(weights, shards()[0]) if hasattr(x, "full_tensor") else weights)).sum(), leaf
        )
        (expected_gradient,) = torch.autograd.grad((module(plain) * weights).sum(), plain)
        assert torch.allclose(numbers(gradient).double(), expected_gradient.double(), rtol=1e-2, atol=1e-5), spec


# ------------------------------------------------------------------------------------------------ inputs that are refused

REFUSED: dict[str, tuple[Make, str]] = {
    "freed": (lambda: freed(X), FREED),
    "freed and transposed": (lambda: freed(X, lambda x: x[:, :4].T), FREED),
    "nested": (lambda: torch.nested.nested_tensor([X[:1], X[1:]]), NESTED),
    "jagged": (lambda: torch.nested.nested_tensor([X[:1], X[1:]], layout=torch.jagged), NESTED),
    "sparse": (lambda: X.to_sparse(), DENSE),
    "csr": (lambda: X.to_sparse_csr(), DENSE),
    "mkldnn": (lambda: X.to_mkldnn(), DENSE),
    "quantised": (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), FLOATS),
    "a list": (lambda: X.tolist(), NO_TENSOR),
    "an array": (lambda: X.numpy(), r"got ndarray; make one with torch\.from_numpy\(x\)"),
    "a number": (lambda: 1.5, NO_TENSOR),
    "none": (lambda: None, NO_TENSOR),
    "a scalar": (lambda: torch.tensor(1.5), r"a tensor of shape \(\) has no channels"),
    "not initialised": (lambda: nn.parameter.UninitializedParameter(), r"uninitialized parameter"),
}
for _type in sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str):
    _name = str(_type).removeprefix("torch.")
    if _type not in (torch.float32, torch.float64, torch.bfloat16, torch.float16) and not _name.startswith("q"):
        REFUSED[_name] = (partial(torch.empty, 4, 6, dtype=_type), FLOATS)


def check_refused(make: Make, sentence: str) -> None:
    for call in (*(boolit.activation(spec) for spec in SPECS), lambda x: boolit.combine("or", x, X)):
        if "no channels" in sentence and not isinstance(call, nn.Module):
            continue  # combine takes scalars, and its first step is torch's
        with pytest.raises((TypeError, ValueError, NotImplementedError, IndexError), match=sentence) as caught:
            call(make())
        assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------ without numbers


def check_shape(make: Make) -> None:
    for spec in SPECS:
        module = boolit.activation(spec)
        out = module(make())
        assert tuple(out.shape) == (4, module.out_features(6))
        assert type(out) is type(make())


# ------------------------------------------------------------------------------------------------ modes


@contextlib.contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


class Watching(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], Any]] = {
    "torch.device meta": lambda: torch.device("meta"),
    "set_default_device meta": lambda: default_device("meta"),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu"),
    "a dispatch mode": Watching,
}


def check_mode(mode: Callable[[], Any]) -> None:
    for spec in SPECS:
        module = boolit.activation(spec)
        plain = X.clone().requires_grad_()
        expected = module(plain)
        weights = torch.randn_like(expected)
        (expected_gradient,) = torch.autograd.grad(expected, plain, weights)
        x = X.clone().requires_grad_()
        with mode():
            out = module(x)
            gradient = torch.autograd.grad(out, x, weights)[0] if out.requires_grad else expected_gradient
        assert out.device == X.device
        assert torch.allclose(out, expected, rtol=1e-6, atol=1e-6)
        assert torch.allclose(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------------------------ gradients that come back

GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda g: g,
    "expanded": lambda g: g[:1, :1].expand(g.shape),
    "transposed": lambda g: g.T.contiguous().T,
    "negative": lambda g: torch._neg_view(g),
    "zero tensor": lambda g: torch._efficientzerotensor(g.shape),
    "sparse": lambda g: g.to_sparse(),
    "functional": lambda g: torch._to_functional_tensor(g),
    "subclass": lambda g: g.as_subclass(Silent),
    "listening subclass": lambda g: g.as_subclass(Listening),
    "other type": lambda g: g.double(),
}
BROKEN_GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "freed": freed,
    "freed and transposed": lambda g: freed(g.T.contiguous(), lambda g: g.T),
    "meta": lambda g: g.to("meta"),
}


def check_gradient(change: Callable[[Tensor], Tensor]) -> None:
    for spec in SPECS:
        module, x = boolit.activation(spec), X.clone().requires_grad_()
        out = module(x)
        dense = torch.linspace(-1, 2, out.numel()).reshape(out.shape)
        plain = change(dense)
        plain = plain.to_dense() if plain.is_sparse else numbers(plain)
        (gradient,) = torch.autograd.grad(out, x, change(dense), retain_graph=True)
        (expected,) = torch.autograd.grad(out, x, plain.float())
        assert torch.allclose(numbers(gradient), expected), spec


def check_broken_gradient(change: Callable[[Tensor], Tensor]) -> None:
    for spec in SPECS:
        module, x = boolit.activation(spec), X.clone().requires_grad_()
        out = module(x)
        with contextlib.suppress(ValueError, TypeError, RuntimeError):  # of a wrong device torch complains
            (gradient,) = torch.autograd.grad(out, x, change(torch.ones_like(out)))
            assert not gradient.is_cpu, f"{spec} made numbers of nothing"


# ------------------------------------------------------------------------------------------------ what a backward has kept

HOOKS: dict[str, Callable[[Tensor], Tensor]] = {
    "copied": lambda kept: kept.clone(),
    "strided": lambda kept: kept.repeat_interleave(2, -1)[..., ::2],
    "subclass": lambda kept: kept.as_subclass(Silent),
}
BROKEN_HOOKS: dict[str, Callable[[Tensor], Tensor]] = {
    "freed": freed,
    "cut": lambda kept: kept.flatten()[:1],
    "nothing": lambda kept: kept.flatten()[:0],
    "meta": lambda kept: kept.to("meta"),
}


def check_kept(unpack: Callable[[Tensor], Tensor], right: bool) -> None:
    for spec in SPECS:
        module, x = boolit.activation(spec), X.clone().requires_grad_()
        (expected,) = torch.autograd.grad(module(x).sum(), x)
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpack):
            out = module(x).sum()
        try:
            (gradient,) = torch.autograd.grad(out, x)
        except (ValueError, TypeError, RuntimeError):
            assert not right, spec
        else:
            assert right, spec
            assert torch.equal(gradient, expected)


def check_operators() -> None:
    """The operators themselves, with sizes that do not fit together."""
    program, grad = "or_ail", torch.ones(4, 3)
    bits = torch.ops.boolit.gates(X, program, 1, True)[1]
    wrong: list[Case] = [
        lambda: torch.ops.boolit.gates_backward(grad, bits[:1], program, 1, 6),
        lambda: torch.ops.boolit.gates_backward(grad[:1], bits, program, 1, 600),
        lambda: torch.ops.boolit.gates_backward(grad, X[:1], program, 1, 6),
        lambda: torch.ops.boolit.gates_backward(grad, X.double()[:1], program, 1, 6),
        lambda: torch.ops.boolit.gates_backward(freed(grad), bits, program, 1, 6),
        lambda: torch.ops.boolit.gates(freed(X), program, 1, True),
        lambda: torch.ops.boolit.gates(X.long(), program, 1, True),
        lambda: torch.ops.boolit.gates(X, program, 7, True),
        lambda: torch.ops.boolit.gates(X, "or_ial", 1, True),
    ]
    for call in wrong:
        with contextlib.suppress(ValueError, TypeError, RuntimeError, IndexError, KeyError):
            raise AssertionError(f"accepted: {call()}")


# ------------------------------------------------------------------------------------------------ the child and its parent

GROUPS: dict[str, dict[str, Case]] = {
    "right": {
        **{name: partial(check_right, make) for name, make in RIGHT.items()},
        **{f"under {name}": partial(check_mode, mode) for name, mode in MODES.items()},
        "meta": partial(check_shape, lambda: X.to("meta")),
        "fake": partial(check_shape, lambda: fake(X)),
        **{f"gradient {name}": partial(check_gradient, change) for name, change in GRADIENTS.items()},
        **{f"kept {name}": partial(check_kept, hook, True) for name, hook in HOOKS.items()},
    },
    "refused": {
        **{name: partial(check_refused, *case) for name, case in REFUSED.items()},
        **{f"gradient {name}": partial(check_broken_gradient, change) for name, change in BROKEN_GRADIENTS.items()},
        **{f"kept {name}": partial(check_kept, hook, False) for name, hook in BROKEN_HOOKS.items()},
        "operators": check_operators,
    },
}


if not status().active:  # then a backward is torch's own, and so is what it makes of a strange gradient
    for _cases in GROUPS.values():
        for _name in [name for name in _cases if name.startswith(("gradient", "kept", "operators", "fake"))]:
            del _cases[_name]


CASES = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}


def run() -> None:
    warnings.simplefilter("ignore")  # nested, quantised and masked tensors are prototypes, and say so
    for name, case in CASES.items():
        print(json.dumps(name), end="\t", flush=True)
        try:
            case()
        except BaseException as error:
            print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
        else:
            print(json.dumps("fine"), flush=True)


def test_no_kind_of_tensor_gives_wrong_numbers_or_a_crash() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False)
    outcomes = {
        json.loads(name): outcome and json.loads(outcome)
        for name, _, outcome in (line.partition("\t") for line in done.stdout.splitlines())
    }
    assert done.returncode == 0, f"{list(outcomes)[-1]!r} ended the process: {done.stderr[-500:]}"
    assert list(outcomes) == list(CASES)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "fine"} == {}


if __name__ == "__main__":
    run()
