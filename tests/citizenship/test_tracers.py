"""torch.jit.trace, torch.fx, torch.export and both ONNX exporters: the eager numbers, for every activation there is."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from gate_cases import WIDTH
from torch import Tensor, fx, nn

import boolit
from boolit import functional
from boolit.functional import gate, or_ail
from boolit.nn import Ensemble, Gate, known_specs

pytestmark = [
    pytest.mark.check,
    *(
        pytest.mark.filterwarnings(rf"ignore:`torch\.jit\.{name}` is deprecated:DeprecationWarning")
        for name in ("trace", "trace_method", "script", "save", "load", "freeze")
    ),
]
MORE = [
    *("or_ail_k3", "xnor_nail_k3", "and_il_k3_halves", "xnor_nil_k3", "or_xnor_ail_d_k3", "or_and_xnor_nail_pu"),
    *("max_k3", "min_halves", "signed_geomean_halves", "or_ail+xnor_il_d", "max+xnor_ail_d", "max+xnor_ail_p"),
]
SPECS = [*(spec for spec in known_specs() if spec != "rrelu"), *MORE]  # rrelu draws numbers
# For the newer ONNX exporter, which takes its time, beside what test_export.py gives it: every baseline, and of the gates
# every operation, form, strategy, grouping and mixture, instead of each with each.
GATES_ONCE = [
    *("nand_il", "nor_ail", "xor_nil", "implies_nail", "implied_by_il", "nimplied_by_ail", "or_and_nil_d", "or_xnor_nil_p"),
    *("xnor_nail_k3", "and_il_k3_halves", "or_xnor_ail_d_k3", "or_and_xnor_nail_pu", "or_ail+xnor_il_d", "max+xnor_ail_p"),
    *("or_il", "xnor_il", "or_nil", "or_and_xnor_il_p", "nimplies_nail"),
]
SPECS_ONCE = [*(spec for spec in SPECS if not isinstance(boolit.activation(spec), Gate | Ensemble)), *GATES_ONCE]


class Everything(nn.Module):
    """Every activation on the same input, their outputs side by side."""

    def __init__(self, dim: int, specs: list[str] = SPECS) -> None:
        super().__init__()
        self.each = nn.ModuleList(boolit.activation(spec, dim) for spec in specs)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        out: list[Tensor] = []
        for module in self.each:
            out.append(module(x))
        return torch.cat(out, self.dim)


def logits(dim: int, rows: int = 2) -> Tensor:
    return 2 * torch.randn((rows, WIDTH, 3, 4) if dim == 1 else (rows, WIDTH))


def assert_same(actual: Tensor, expected: Tensor, dim: int, tolerance: float, specs: list[str] = SPECS) -> None:
    """Of each activation: the message names it."""
    widths = [boolit.activation(spec).out_features(WIDTH) for spec in specs]
    for spec, one, other in zip(specs, actual.split(widths, dim), expected.split(widths, dim), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=lambda text, spec=spec: f"{spec}: {text}")


def check(traced: Callable[[Tensor], Tensor], dim: int, gradients: bool = True, specs: list[str] = SPECS) -> None:
    """Values and gradients are those of the modules, for another number of rows too, as often as it is called."""
    eager = Everything(dim, specs)
    for rows in (2, 2, 5):
        x = logits(dim, rows).requires_grad_(gradients)
        actual, expected = traced(x), eager(x)
        assert_same(actual, expected, dim, 2e-6, specs)
        if gradients:
            weights = torch.randn_like(expected)
            slopes = [torch.autograd.grad(out, x, weights)[0] for out in (actual, expected)]
            torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-4)  # a sum over all activations


def saved_and_loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    loaded: torch.jit.ScriptModule = torch.jit.load(file)
    return loaded


@pytest.mark.parametrize("dim", [-1, 1])
def test_jit_trace(dim: int) -> None:
    specs = SPECS if dim == 1 else SPECS_ONCE
    traced = torch.jit.trace(Everything(dim, specs), logits(dim), check_trace=dim == 1)  # which traces it once more
    names = {node.kind() for node in traced.inlined_graph.nodes()}
    assert "aten::where" in names
    assert not [name for name in names if name.startswith("boolit")], "a trace runs without boolit"
    check(traced, dim, specs=specs)
    if dim == 1:  # each takes the graph through all of torch's passes again
        check(saved_and_loaded(traced), dim, specs=specs)
    else:
        check(torch.jit.freeze(traced.eval()), dim, gradients=False, specs=specs)


@pytest.mark.parametrize("dim", [-1, 1])
def test_fx(dim: int) -> None:
    check(fx.symbolic_trace(Everything(dim)), dim)


def both(x: Tensor) -> Tensor:
    return or_ail(x, dim=1) + functional.xnor_nil(x, 2, -1) + gate(x, "implies_il_halves")


def test_functions() -> None:
    x = torch.randn(3, WIDTH)
    for traced in (torch.jit.trace(both, x), fx.symbolic_trace(both)):
        torch.testing.assert_close(traced(x), both(x), rtol=2e-6, atol=2e-6)


def test_combine_in_a_graph() -> None:
    x, y = torch.randn(2, 4, 4)
    graph = fx.symbolic_trace(lambda x, y: boolit.combine("or", x, y))
    assert torch.equal(graph(x, y), boolit.combine("or", x, y))
    traced = torch.jit.trace(lambda x, y: boolit.combine("or", x, y), (x, y))
    torch.testing.assert_close(traced(x, y), boolit.combine("or", x, y), rtol=2e-6, atol=2e-6)


def test_a_graph_shows_a_gate_as_one_operator() -> None:
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 8), boolit.activation("or_and_xnor_nail_d"))).graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    assert [(str(node.target), node.args[1:]) for node in calls] == [("boolit.evaluate", ("or_and_xnor_nail_d", None))]


def test_half_precision() -> None:
    x = torch.randn(3, WIDTH).bfloat16()
    for spec in ("or_ail", "xnor_nil", "or_and_xnor_nail_d"):
        module = boolit.activation(spec)
        for traced in (torch.jit.trace(module, x), fx.symbolic_trace(module)):
            assert torch.equal(traced(x), module(x))


# torch's exporter copies a structure of its own that torch has deprecated, as is the older exporter
@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning")
@pytest.mark.parametrize("dynamo", [False, True])
def test_onnx(dynamo: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "torch.__trace")  # which writes every graph down as soon as a logger listens
    specs = SPECS_ONCE if dynamo else SPECS
    model, path = Everything(1, specs).eval(), tmp_path / "everything.onnx"
    if dynamo:
        torch.onnx.export(model, (logits(1),), path, dynamo=True, optimize=False, verbose=False)
    else:
        axes = {"x": {0: "rows"}, "out": {0: "rows"}}
        names = {"input_names": ["x"], "output_names": ["out"]}
        torch.onnx.export(model, (logits(1),), path, dynamo=False, dynamic_axes=axes, opset_version=18, **names)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    special = torch.tensor([-5.0, -5.0, -1e-3, 0.0, 0.0, 1e-3, 3.0, 3.0, 5.0])
    for x in (logits(1), special[torch.randint(len(special), (2, WIDTH, 3, 4))], *([] if dynamo else [logits(1, rows=5)])):
        (result,) = session.run(None, {"x": np.asarray(x)})
        assert_same(torch.tensor(result), model(x).detach(), 1, 1e-5, specs)
