"""torch.export: exported programs do not need boolit, and compute the same."""

from __future__ import annotations

import io

import pytest
import torch
from gate_cases import WIDTH, assert_agree
from torch import Tensor, nn

import boolit

pytestmark = pytest.mark.check

ENSEMBLES = ["or_and_xnor_nail_d", "or_and_xnor_il_p", "or_xnor_ail_pu"]
SPECS = [
    *("or_il", "xnor_il", "or_nil", "or_ail", "xnor_ail", "and_nail"),  # the export is slow; test_tracers.py has more of them
    *ENSEMBLES,
    "or_ail_k3",
    "xnor_ail_k3",
    "and_nil_k3",
    "xnor_il_k3",
    "nimplies_nail",
    "max_min_d",
    "signed_geomean",
]


class Everything(nn.Module):
    """Every activation in turn on the same input."""

    def __init__(self, specs: list[str] = SPECS) -> None:
        super().__init__()
        self.in_turn = nn.ModuleList(boolit.activation(spec, dim=1) for spec in specs)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [module(x) for module in self.in_turn]


def inputs() -> list[Tensor]:
    """Ordinary logits in batches of two sizes; and large, tied and zero ones."""
    special = torch.tensor([-1e30, -90.0, -8.0, -8.0, 0.0, 0.0, 0.0, 3.0, 3.0, 8.0, 90.0, 1e30])
    return [2 * torch.randn(3, WIDTH, 4), 2 * torch.randn(6, WIDTH, 4), special[torch.randint(WIDTH, (3, WIDTH, 4))]]


def export(module: Everything) -> torch.export.ExportedProgram:
    shapes = {"x": {0: torch.export.Dim("batch", min=1)}}
    return torch.export.export(module, (torch.randn(3, WIDTH, 4),), dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    return export(Everything())


def test_exported_programs_compute_the_same(exported: torch.export.ExportedProgram) -> None:
    module = Everything()
    for x in inputs():
        for actual, expected in zip(exported.module()(x), module(x), strict=True):
            assert_agree(actual, expected, 32)


def test_exported_programs_need_no_boolit(exported: torch.export.ExportedProgram) -> None:
    called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert "aten.log1p.default" in called
    assert not [name for name in called if "boolit" in name]


def test_exported_programs_can_be_saved() -> None:
    module, file, x = boolit.activation("or_xnor_nail_d"), io.BytesIO(), torch.randn(2, WIDTH)
    torch.export.save(torch.export.export(module, (x,)), file)
    file.seek(0)
    assert_agree(torch.export.load(file).module()(x), module(x))


def test_exported_programs_can_be_trained(exported: torch.export.ExportedProgram) -> None:
    x, y = (torch.full((2, WIDTH, 4), 0.7).cumsum(1).requires_grad_() for _ in range(2))
    for actual, expected in zip(exported.module()(x), Everything()(y), strict=True):
        gradients = [torch.autograd.grad(out.sum(), leaf, retain_graph=True)[0] for out, leaf in ((actual, x), (expected, y))]
        assert_agree(gradients[0], gradients[1], 32)
