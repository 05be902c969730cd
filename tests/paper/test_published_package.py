"""Agreement with the authors' own package, pytorch-logit-logic 1.0.0, wherever it is right; and where it is not.

It computes exact gates from probabilities clamped at 1e-7, knows them for k ≤ 5 only, and shifts and scales by constants that
were sampled. Its "parity" asks for an even number of true operands, which is XNOR for even k and its negation for odd k.
"""

from __future__ import annotations

import pytest
import pytorch_logit_logic as published
import torch
from torch import Tensor, nn

import boolit
from boolit.functional import gate, signed_geomean

OPERATIONS = {"AND": "and", "OR": "or", "Parity": "xor"}
FORMS = {"IL": "il", "AIL": "ail", "NIL": "nil", "NAIL": "nail"}
CLAMP = 1e-7


def ours(x: Tensor, operation: str, form: str, k: int) -> Tensor:
    """What the published class of this name means, dimension 1."""
    value = gate(x, f"{OPERATIONS[operation]}_{FORMS[form]}_k{k}", 1)
    return -value if operation == "Parity" else value  # even is not odd


def theirs(operation: str, form: str, k: int) -> nn.Module:
    module: nn.Module = getattr(published, f"{form}_{operation}")(k=k, dim=1)
    return module


def logits(k: int, limit: float = 6.0) -> Tensor:
    """Within ±limit, in double precision: in single, 1 - p costs the published formulas most digits."""
    return (2 * limit * torch.rand(500, 2 * k, 3, dtype=torch.float64) - limit).requires_grad_()


def unclamped(x: Tensor, operation: str, k: int) -> Tensor:
    """Where neither the probability nor its complement reaches the published clamp."""
    value = ours(x, operation, "IL", k).detach()
    return torch.minimum(value.sigmoid(), (-value).sigmoid()) > 2 * CLAMP


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("form", ["IL", "AIL"])
def test_values_and_gradients_agree(form: str, operation: str, k: int) -> None:
    x = logits(k)
    right = unclamped(x, operation, k) if form == "IL" else torch.ones_like(x[:, :2], dtype=torch.bool)
    assert right.float().mean() > (0.7 if k < 5 else 0.5)
    if k == 2:
        assert right.all()
    mine, published_one = ours(x, operation, form, k), theirs(operation, form, k)(x)
    torch.testing.assert_close(mine[right], published_one[right], rtol=0, atol=1e-5)
    gradients = [torch.autograd.grad(value[right].sum(), x)[0] for value in (mine, published_one)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("form", ["IL", "AIL"])
def test_normalised_forms_agree_up_to_their_sampled_constants(form: str, operation: str, k: int) -> None:
    x = logits(k)
    right = unclamped(x, operation, k) if form == "IL" else torch.ones_like(x[:, :2], dtype=torch.bool)
    raw, normal = (theirs(operation, kind, k)(x.detach())[right] for kind in (form, f"N{form}"))
    low, high = raw.argmin(), raw.argmax()
    sd = (raw[high] - raw[low]) / (normal[high] - normal[low])
    mean = raw[low] - sd * normal[low]
    exact_mean, exact_sd = boolit.logic.moments(OPERATIONS[operation], form.lower(), k)
    assert float(mean) == pytest.approx(exact_mean, abs=5e-5)
    assert float(sd) == pytest.approx(exact_sd, rel=2e-4)
    mine = ours(x.detach(), operation, f"N{form}", k)[right] * exact_sd + (exact_mean if operation != "Parity" else -exact_mean)
    torch.testing.assert_close(mine, normal * sd + mean, rtol=0, atol=1e-5)
    if form == "AIL" and k == 2:  # the closed forms
        torch.testing.assert_close(ours(x, operation, "NAIL", 2), theirs(operation, "NAIL", 2)(x), rtol=0, atol=1e-12)


ENSEMBLES = [
    ("max_min_duplicate", "max_min_d"),
    ("max_min_partition", "max_min_p"),
    *((f"{form}_AND_OR_duplicate", f"and_or_{name}_d") for form, name in FORMS.items()),
    *((f"{form}_OR_XNOR_duplicate", f"or_xnor_{name}_d") for form, name in FORMS.items()),
    *((f"{form}_AND_OR_XNOR_duplicate", f"and_or_xnor_{name}_d") for form, name in FORMS.items()),
    *((f"{form}_OR_XNOR_partition", f"or_xnor_{name}_p") for form, name in FORMS.items()),
    *((f"{form}_AND_OR_XNOR_partition", f"and_or_xnor_{name}_p") for form, name in FORMS.items()),
]


@pytest.mark.parametrize(("name", "spec"), ENSEMBLES)
def test_ensembles_agree(name: str, spec: str) -> None:
    theirs, mine = getattr(published, name)(dim=1), boolit.activation(spec, dim=1)
    x = (12 * torch.rand(50, 12, 3, dtype=torch.float64) - 6).requires_grad_()
    sampled = 1e-5 if "_nil" not in spec else 3e-4
    torch.testing.assert_close(mine(x), theirs(x), rtol=0, atol=sampled)
    gradients = [torch.autograd.grad(module(x).sum(), x)[0] for module in (mine, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=sampled)
    assert (mine.width_multiple, float(mine.feature_factor)) == (theirs.divisor, theirs.feature_factor)


def test_baselines_agree() -> None:
    x = torch.randn(50, 12, 3, dtype=torch.float64, requires_grad=True)
    for k in (2, 3, 4):
        assert torch.equal(boolit.nn.Reduction("max", k, 1)(x), published.MaxOut(k=k, dim=1)(x))
        assert torch.equal(boolit.nn.Reduction("min", k, 1)(x), published.MinOut(k=k, dim=1)(x))
    mine, geomean = signed_geomean(x, dim=1), published.SignedGeomean(dim=1)(x)
    torch.testing.assert_close(mine, geomean)
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), x)[0] for value in (mine, geomean)))
    torch.testing.assert_close(boolit.activation("glu", dim=1)(x), published.GLU(dim=1)(x))


# ------------------------------------------------------------------------------------------------ where it is wrong


def value_and_gradient(module: nn.Module, *operands: float) -> tuple[float, list[float]]:
    x = torch.tensor([operands], requires_grad=True)
    out = module(x)
    out.sum().backward()
    assert x.grad is not None
    return float(out.detach()), x.grad[0].tolist()


@pytest.mark.parametrize(
    ("name", "spec", "operands"),
    [
        ("OR", "or_il", (9.0, 9.0)),
        ("Parity", "xnor_il", (20.0, 18.0)),
        ("AND", "and_il", (20.0, 25.0)),
        ("AND", "and_il", (-9.0, -9.0)),
    ],
)
def test_its_exact_gates_are_clamped_and_their_gradients_dead(name: str, spec: str, operands: tuple[float, float]) -> None:
    value, gradient = value_and_gradient(getattr(published, f"IL_{name}")(), *operands)
    assert abs(value) == pytest.approx(16.118, abs=0.002)
    assert gradient == pytest.approx([0.0, 0.0], abs=1e-7)
    value, gradient = value_and_gradient(boolit.activation(spec), *operands)
    assert abs(value) > 17.5
    assert sum(gradient) > 0.9


def test_its_xnor_has_no_gradient_at_zero() -> None:
    assert value_and_gradient(published.AIL_XNOR(), 0.0, -3.0)[1] == [0.0, 0.0]
    assert value_and_gradient(boolit.activation("xnor_ail"), 0.0, -3.0)[1] == [-1.0, 0.0]
