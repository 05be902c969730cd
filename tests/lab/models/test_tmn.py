"""TMN and TMNx against a plain version that scores every image and pair with torch's own layers, and the paper's counts."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boolit
from boolit.errors import UserError
from boolit.lab.models import family, tmn
from boolit.lab.models.tmn import TmnNetwork

FEATURES, PAIRS, MODULES = 7, 9, 3
SMALL = {"name": "tmn", "attributes": 3, "objects": 4, "vectors": 5, "modules": MODULES, "embedding": 4, "gater": 6}


def built(variant: str, spec: str) -> TmnNetwork:
    """A small network in float64 whose weights and statistics are nothing special."""
    own = family(SMALL | {"variant": variant})
    width = 12 if variant == "tmnx" else own.widths_for_activation([4], [FEATURES], PAIRS, boolit.activation(spec))[0]
    network = own.network([FEATURES], PAIRS, [width], spec)
    own.initialize(network, 3)
    drawn = torch.Generator().manual_seed(5)
    for name, values in network.state_dict().items():
        if ("norm" in name or "entry" in name or name == "gater.last.weight") and values.is_floating_point():
            values.normal_(1.0, 0.2, generator=drawn).abs_()
    network.pairs.copy_(torch.tensor([[pair % 3, pair % 4] for pair in range(PAIRS)]))
    return network.double()


def plain(network: TmnNetwork, images: Tensor, candidates: Tensor, spec: str, gater_spec: str) -> Tensor:
    """One row per image and candidate; every module and batch norm by itself."""
    state = dict(network.named_parameters()) | dict(network.named_buffers())

    def norm(x: Tensor, name: str, part: slice | int = slice(None)) -> Tensor:
        mean, var, weight, bias = (state[f"{name}.{k}"][part] for k in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean.clone(), var.clone(), weight, bias, network.training)

    def module(x: Tensor, name: str, number: int, part: slice | int) -> Tensor:
        x = F.linear(x, state[f"{name}.linear.weight"][number], state[f"{name}.linear.bias"][number])
        x = boolit.activation(spec, dim=1)(norm(x, f"{name}.norm", part))
        projection = state.get(f"{name}.projection.weight")
        return x if projection is None else x @ projection[number].T

    rows, width = candidates.numel(), state["first.linear.weight"].shape[1]
    attributes, objects = state["pairs"][candidates.flatten()].unbind(1)
    words = torch.cat([state["attributes.weight"][attributes], state["objects.weight"][objects]], 1)
    hidden = boolit.activation(gater_spec, dim=1)(norm(words @ state["gater.first.weight"].T, "gater.norm"))
    gates = (hidden @ state["gater.last.weight"].T)[:, 1 + MODULES :].split([MODULES**2, MODULES**2, MODULES], 1)
    gates = [gate.view(rows, -1, MODULES).softmax(2) for gate in gates]
    of_image = [module(images, "first", m, slice(m * width, (m + 1) * width)) for m in range(MODULES)]
    outputs = [x.repeat_interleave(candidates.shape[1], 0) for x in of_image]
    for layer in range(2):
        mixed = [sum(gates[layer][:, m, s, None] * outputs[s] for s in range(MODULES)) for m in range(MODULES)]
        outputs = [module(norm(x, f"inner.{layer}.entry", m), f"inner.{layer}", m, m) for m, x in enumerate(mixed)]
    mixed = sum(gates[2][:, 0, s, None] * outputs[s] for s in range(MODULES))
    scores = F.linear(norm(mixed, "head.norm"), state["head.linear.weight"], state["head.linear.bias"])
    return scores.view(candidates.shape)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("variant", "spec"), [("tmn", "relu"), ("tmn", "or_ail"), ("tmnx", "or_and_xnor_nail_d"), ("tmnx", "xnor_il")]
)
def test_scores_and_gradients(variant: str, spec: str, training: bool, in_parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_parts:
        monkeypatch.setattr(tmn, "NUMBERS_AT_ONCE", 1)
        monkeypatch.setattr(tmn, "ROWS_AT_ONCE", 3)
    drawn = torch.Generator().manual_seed(1)
    images = torch.randn(4, FEATURES, dtype=torch.float64, generator=drawn)
    candidates = torch.randint(PAIRS - 1, (4, 5), generator=drawn)
    network = built(variant, spec).train(training)
    gater_spec = spec if variant == "tmnx" else "relu"
    expected = plain(network, images, candidates, spec, gater_spec)
    outputs = network(torch.cat([images, candidates.double()], 1))
    torch.testing.assert_close(outputs, expected)
    weights, parameters = torch.randn_like(expected), list(network.parameters())
    ours, theirs = (torch.autograd.grad(scores, parameters, weights, retain_graph=True) for scores in (outputs, expected))
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-6, atol=1e-9)
    if not training:  # without candidates, all listed pairs are scored
        every = torch.arange(PAIRS).expand(4, -1)
        torch.testing.assert_close(network(images), plain(network, images, every, spec, gater_spec))


def test_running_statistics_are_those_of_batch_norm() -> None:
    network = built("tmnx", "relu")
    layer, x = network.inner[0], torch.randn(MODULES, 20, 4, dtype=torch.float64)
    entry = [torch.nn.BatchNorm1d(4).double() for _ in range(MODULES)]
    for m, norm in enumerate(entry):
        norm.load_state_dict({k: v[m] for k, v in layer.entry.state_dict().items()})
        norm(x[m])
    layer(x)
    torch.testing.assert_close(layer.entry.running_var, torch.stack([norm.running_var for norm in entry]))
    torch.testing.assert_close(layer.entry.running_mean, torch.stack([norm.running_mean for norm in entry]))


def test_gates_are_equal_at_first_and_have_their_own_rate() -> None:
    own = family(SMALL | {"gater_rate": 10.0})
    network = own.network([FEATURES], PAIRS, [12], "relu")
    own.initialize(network, 0)
    assert not network.gater.last.weight.any()
    assert (own.rate_factor("gater.first.weight"), own.rate_factor("head.linear.weight")) == (10.0, 1.0)


def test_wrong_sizes_are_refused() -> None:
    own = family(SMALL | {"variant": "tmn"})
    with pytest.raises(UserError, match=r"sweep\.width = 4"):
        own.network([FEATURES], PAIRS, [5], "relu")
    with pytest.raises(UserError, match="one size"):
        own.widths_for_budget(1000, 1, [FEATURES], PAIRS, boolit.activation("relu"))
    with pytest.raises(UserError, match="no width before"):
        own.widths_for_activation([5], [FEATURES], PAIRS, boolit.activation("or_and_xnor_ail_p"))
