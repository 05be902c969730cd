"""torch.compile without graph breaks, with fixed and with changing shapes: the same values and gradients as eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from gate_cases import SPECS, WIDTH, assert_agree
from torch import Tensor, nn
from torch.library import opcheck

import boolit
from boolit.functional import combine, gate
from boolit.logic import Program

# inductor, as torch loads it, still uses functions that torch has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

SPECS_AND_K3 = [*SPECS, "or_il_k3", "xnor_nail_k3_halves"]  # all in one graph: compiling takes its time


@pytest.fixture(autouse=True)
def _fresh_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # not the user's cache: what it holds may have been compiled for other instructions than this process is held to
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    from torch._inductor import config  # not above: it takes seconds, in every process that collects the tests

    torch.compiler.reset()
    with config.patch("cpp.vec_isa_ok", False):  # else it compiles ten programs to find out what the processor can do
        yield
    torch.compiler.reset()


class Everything(nn.Module):
    """Every activation, each on its own part of the input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.each = nn.ModuleList(boolit.activation(spec, dim) for spec in SPECS_AND_K3)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [module(part) for module, part in zip(self.each, x.unbind(), strict=True)]


def logits(*shape: int) -> Tensor:
    return 2 * torch.randn(len(SPECS_AND_K3), *shape)


def check_values(compiled: Callable[..., list[Tensor]], eager: nn.Module, x: Tensor) -> None:
    for actual, expected in zip(compiled(x), eager(x), strict=True):
        assert_agree(actual, expected)


def check(compiled: Callable[..., list[Tensor]], eager: nn.Module, x: Tensor) -> None:
    """Outputs agree, and so do the gradients."""
    leaf = x.clone().requires_grad_()
    check_values(compiled, eager, leaf)
    gradients = [torch.autograd.grad([out.square().sum() for out in module(leaf)], leaf)[0] for module in (compiled, eager)]
    for actual, expected in zip(*gradients, strict=True):
        assert_agree(actual, expected)
    with torch.no_grad():
        check_values(compiled, eager, x)


def test_fixed_shapes() -> None:
    module = Everything(dim=1)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)
    check(compiled, module, logits(3, WIDTH, 5))


def test_changing_shapes() -> None:
    module = Everything(dim=1)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=False):
        check(compiled, module, logits(3, WIDTH, 5))
    with torch._dynamo.config.patch(error_on_recompile=True):
        check(compiled, module, logits(4, WIDTH, 7))
        check(compiled, module, logits(9, 4 * WIDTH, 2))


def test_not_contiguous_inputs() -> None:
    module = Everything(dim=1)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = logits(2, 4, 3, WIDTH).movedim(-1, 2)  # each part is in channels_last order
    for actual, expected in zip(compiled(x), module(x), strict=True):
        assert_agree(actual, expected)
        assert actual.stride() == expected.stride()


def test_functions() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        a = gate(x, "or_nail_k3", 0)
        b = gate(x, "and_xnor_il_p", 0)
        return combine("xnor", a.sum(0), b.sum(0), y)

    x, y = torch.randn(WIDTH, 4), torch.randn(())
    assert_agree(torch.compile(function, fullgraph=True, backend="aot_eager")(x, y), function(x, y))


@pytest.mark.parametrize("spec", ["or_and_xnor_ail_d", "xnor_il"])
def test_transforms_inside(spec: str) -> None:
    """Not in one graph: which transform is at work is a question dynamo leaves to Python."""
    module, x = boolit.activation(spec), torch.randn(3, WIDTH)
    function = torch.vmap(torch.func.grad(lambda x: module(x).square().sum()))
    assert_agree(torch.compile(function, backend="aot_eager")(x), function(x))
    mapped = torch.vmap(lambda x: module(x), 1, 1)
    assert_agree(torch.compile(mapped, backend="aot_eager")(x.T), mapped(x.T))


def test_the_compiled_graph_calls_the_kernels() -> None:
    names: list[str] = []

    def spy(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compile(boolit.activation("or_and_xnor_ail_d"), fullgraph=True, backend=spy)(torch.randn(2, WIDTH))
    assert sum("boolit" in name for name in names) == 1


@pytest.mark.parametrize("spec", ["or_and_xnor_ail_p", "xnor_il"])
def test_inductor(spec: str) -> None:
    act = boolit.activation(spec)
    net = nn.Sequential(nn.Linear(6, WIDTH), act, nn.Linear(act.out_features(WIDTH), 2))
    compiled = torch.compile(net, fullgraph=True)
    x = torch.randn(7, 6)
    loss, wanted = compiled(x).square().mean(), net(x).square().mean()
    torch.testing.assert_close(loss, wanted)
    gradients = (torch.autograd.grad(out, list(net.parameters())) for out in (loss, wanted))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)


OPERATOR_SPECS = ["or_ail", "or_and_xnor_nail_pu", "xnor_ail_k3_halves", "or_il", "or_and_xnor_nil_d", "or_ail+xnor_il_d"]


@pytest.mark.parametrize("spec", OPERATOR_SPECS)
def test_the_operators_keep_the_rules_of_torch(spec: str) -> None:
    program = Program.parse(spec)
    x = torch.randn(3, WIDTH, requires_grad=True)
    opcheck(torch.ops.boolit.gates.default, (x, spec, 1, program.approximate))
    out, kept = torch.ops.boolit.gates(x, spec, 1, program.approximate)
    saved = kept if program.approximate else x.detach()
    opcheck(torch.ops.boolit.gates_backward.default, (torch.randn_like(out), saved, spec, 1, WIDTH))
