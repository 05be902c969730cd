"""The controls for gates: random and learned maps of pairs."""

from __future__ import annotations

import math

import pytest
import torch

import boolit
from boolit.errors import UserError
from boolit.lab.models import family
from boolit.lab.models.controls import CONES, Control, random_cones
from boolit.logic.moments import moments
from boolit.nn import known_specs

SPECS = ["pair_random_or", "pair_random_and", "pair_random_xnor", "pair_random_d", "pair_learned"]


def regions(values: torch.Tensor, step: float) -> torch.Tensor:
    """Count the kinks of homogeneous maps, given on a circle: a linear map satisfies f(t+s) + f(t-s) = 2 cos(s) f(t)."""
    bends = (values.roll(-1, 0) + values.roll(1, 0) - 2 * math.cos(step) * values).abs() > 1e-9
    return (bends & ~bends.roll(1, 0)).sum(0)  # a kink between two angles bends at both


def on_circle(gate: Control | boolit.nn.Activation, pairs: int, angles: int = 4001) -> tuple[torch.Tensor, float]:
    angle = torch.arange(angles, dtype=torch.float64) * 2 * math.pi / angles + 0.1
    points = torch.stack([angle.cos(), angle.sin()], 1).repeat(1, pairs)
    return gate(points), 2 * math.pi / angles


@pytest.mark.parametrize("gate", CONES)
def test_a_random_map_is_continuous_and_has_as_many_regions_as_its_gate(gate: str) -> None:
    control = boolit.activation(f"pair_random_{gate}").sized(60)
    control.seed([1], "activation.0")
    values, step = on_circle(control.double(), 30)
    assert values.diff(dim=0).abs().max() < 10 * step
    assert torch.equal(regions(values, step), torch.full((30,), CONES[gate]))
    values, step = on_circle(boolit.activation(f"{gate}_ail"), 1)
    assert regions(values, step).tolist() == [CONES[gate]]


@pytest.mark.parametrize("gate", CONES)
def test_a_random_map_has_the_moments_of_its_gate(gate: str) -> None:
    normals, slopes = random_cones(CONES[gate], 20, *moments(gate, "ail"), torch.Generator().manual_seed(0))
    angle = (torch.arange(20_000, dtype=torch.float64) + 0.5) * 2 * math.pi / 20_000
    points = torch.stack([angle.cos(), angle.sin()])
    left = (normals.double() @ points) >= 0
    values = ((slopes.double() @ (left & ~left.roll(-1, 1)).double()) * points).sum(1)
    mean = values.mean(1) * math.sqrt(math.pi / 2)  # the mean radius of N(0, 1) in the plane
    sd = (2 * values.square().mean(1) - mean**2).sqrt()
    expected = moments(gate, "ail")
    assert mean == pytest.approx(torch.full((20,), expected[0], dtype=torch.float64).numpy(), abs=1e-4)
    assert sd == pytest.approx(torch.full((20,), expected[1], dtype=torch.float64).numpy(), abs=1e-4)


@pytest.mark.parametrize("spec", SPECS)
def test_a_run_of_a_stack_has_the_maps_of_its_seed_alone(spec: str) -> None:
    mlp = family({"name": "mlp", "normalization": "batch"})
    plain, stacked = mlp.network([6], 3, [12, 8], spec), mlp.stacked(3, [6], 3, [12, 8], spec)
    mlp.initialize(plain, 7)
    stacked.initialize([5, 7, 9])
    values = stacked.weights(1)
    assert all(torch.equal(values[name], value) for name, value in plain.state_dict().items() if name in values)
    assert {name for name in plain.state_dict() if "activation" in name} <= set(values)
    x = torch.randn(5, 6)
    outputs = stacked.eval()(x.expand(3, 5, 6))
    assert torch.allclose(outputs[1], plain.eval()(x), atol=1e-6)
    assert not torch.equal(stacked.weights(0)["linear.0.weight"], values["linear.0.weight"])
    first = next(name for name in values if name.startswith("activation.0"))
    assert not torch.equal(stacked.weights(0)[first], values[first])


@pytest.mark.parametrize("spec", SPECS)
def test_gradients(spec: str) -> None:
    control = boolit.activation(spec).sized(8).double()
    control.seed([0], "activation.0")
    assert torch.autograd.gradcheck(control, (torch.randn(3, 8, dtype=torch.float64, requires_grad=True),))


def test_only_learned_maps_have_parameters() -> None:
    mlp = family({"name": "mlp"})
    counts = {spec: mlp.parameters([6], 3, [12, 12], boolit.activation(spec)) for spec in ("or_ail", *SPECS)}
    assert counts["pair_random_or"] == counts["or_ail"]
    assert counts["pair_learned"] == counts["or_ail"] + 2 * 6 * 8
    assert counts["pair_random_d"] == mlp.parameters([6], 3, [12, 12], boolit.activation("or_and_xnor_ail_d"))


def test_learned_maps_begin_with_a_variance_of_one() -> None:
    control = boolit.activation("pair_learned").sized(4000)
    control.seed([0], "activation.0")
    assert control(torch.randn(500, 4000)).var().item() == pytest.approx(1, abs=0.05)


def test_controls_are_specs_of_studies_but_not_listed() -> None:
    assert not set(SPECS) & set(known_specs())
    with pytest.raises(UserError, match="works in perceptrons only"):
        boolit.activation("pair_random_or")(torch.zeros(2, 4))
