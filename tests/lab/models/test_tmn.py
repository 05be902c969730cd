"""TMN and TMNx against a literal version that scores one image and one pair at a time with torch's own layers."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import boolit
from boolit.errors import UserError
from boolit.lab.models import Stacked, family, restore
from boolit.lab.models.layers import moments
from boolit.lab.models.tmn import layers, network
from boolit.lab.models.tmn.layers import mix
from boolit.lab.runs import RunConfig
from boolit.nn.width import round_width

FEATURES, PAIRS, BATCH, CANDIDATES = 7, 9, 4, 5
SMALL = {"name": "tmn", "attributes": 3, "objects": 4, "vectors": 5, "modules": 3, "layers": 3, "embedding": 4, "gater": 6}
LISTED = torch.tensor([[pair % 3, pair % 4] for pair in range(PAIRS)])


def built(variant: str, spec: str, runs: int = 2, seeds: Sequence[int] | None = None, width: int = 12) -> Stacked:
    """Small networks with weights and statistics that are nothing special."""
    own = family(SMALL | {"variant": variant})
    width = width if variant == "tmnx" else own.widths_for_activation([4], [FEATURES], PAIRS, boolit.activation(spec))[0]
    model = own.build(runs, [FEATURES], PAIRS, [width], spec)
    model.initialise(seeds or range(runs))
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, values in model.state_dict().items():
            if ("norm" in name or "entry" in name or name == "gater.last.weight") and values.is_floating_point():
                values[0].normal_(1.0, 0.2, generator=drawn).abs_()
                values[1:] = values[0]
            if name == "pairs":
                values.copy_(LISTED.expand_as(values))
    return model.double()


def samples(candidates: bool) -> Tensor:
    drawn = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, FEATURES, dtype=torch.float64, generator=drawn)
    numbers = torch.randint(PAIRS - 1, (BATCH, CANDIDATES), generator=drawn).double()
    return torch.cat([images, numbers], 1) if candidates else images


class Literal:
    """The network as the paper describes it; every batch norm is torch's own, on all rows."""

    def __init__(self, state: dict[str, Tensor], spec: str, training: bool) -> None:
        self.state, self.spec, self.training = state, spec, training

    def norm(self, x: Tensor, name: str, part: int | slice) -> Tensor:
        values = [self.state[f"{name}.{kind}"][part] for kind in ("running_mean", "running_var", "weight", "bias")]
        mean, var, weight, bias = (value.clone() if i < 2 else value for i, value in enumerate(values))
        return F.batch_norm(x, mean, var, weight, bias, self.training, 0.1, 1e-5)

    def after(self, x: Tensor, name: str, module: int) -> Tensor:
        x = boolit.activation(self.spec, dim=1)(x)
        projection = self.state.get(f"{name}.projection.weight")
        return x if projection is None else x @ projection[module].T

    def gates(self, candidates: Tensor, modules: int) -> list[Tensor]:
        """Those of every row."""
        attributes, objects = self.state["pairs"][candidates.flatten()].unbind(1)
        words = torch.cat([self.state["attributes.weight"][attributes], self.state["objects.weight"][objects]], 1)
        extended = "first.projection.weight" in self.state
        hidden = self.norm(words @ self.state["gater.first.weight"].T, "gater.norm", slice(None))
        hidden = boolit.activation(self.spec if extended else "relu", dim=1)(hidden)
        flat, first, found = hidden @ self.state["gater.last.weight"].T, 1 + modules, []
        for receivers in (modules, modules, 1):
            own = flat[:, first : first + receivers * modules]
            found.append(torch.stack([own[:, j * modules : (j + 1) * modules].softmax(1) for j in range(receivers)], 1))
            first += receivers * modules
        assert first == flat.shape[1]
        return found

    def __call__(self, images: Tensor, candidates: Tensor) -> Tensor:
        modules, state = state_modules(self.state), self.state
        gates = self.gates(candidates, modules)
        of_image = torch.arange(len(images)).repeat_interleave(candidates.shape[1])
        outputs = []
        for j in range(modules):
            width = state["first.linear.bias"].shape[1]
            hidden = F.linear(images, state["first.linear.weight"][j], state["first.linear.bias"][j])
            outputs.append(self.after(self.norm(hidden, "first.norm", slice(j * width, (j + 1) * width)), "first", j)[of_image])
        for number, own in enumerate(gates[:-1]):
            below, outputs = outputs, []
            name = f"inner.{number}"
            for j in range(modules):
                entering = sum(own[:, j, i].unsqueeze(1) * below[i] for i in range(modules))
                assert isinstance(entering, Tensor)
                hidden = self.norm(entering, f"{name}.entry", j)
                hidden = F.linear(hidden, state[f"{name}.linear.weight"][j], state[f"{name}.linear.bias"][j])
                outputs.append(self.after(self.norm(hidden, f"{name}.norm", j), name, j))
        entering = sum(gates[-1][:, 0, i].unsqueeze(1) * outputs[i] for i in range(modules))
        assert isinstance(entering, Tensor)
        scores = F.linear(self.norm(entering, "head.norm", slice(None)), state["head.linear.weight"], state["head.linear.bias"])
        return scores.view(candidates.shape)


def state_modules(state: dict[str, Tensor]) -> int:
    return state["first.linear.weight"].shape[0]


VARIANTS = [("tmn", "relu"), ("tmn", "or_ail"), ("tmn", "or_and_ail_d"), ("tmnx", "tanh"), ("tmnx", "xnor_il")]
VARIANTS += [("tmnx", "or_xnor_ail_p"), ("tmnx", "or_and_xnor_nail_d"), ("tmnx", "glu")]


@pytest.mark.parametrize("at_once", [2**23, 1], ids=["whole", "recomputed"])
@pytest.mark.parametrize(("variant", "spec"), VARIANTS)
def test_scores_and_gradients_are_those_of_the_literal_network(
    variant: str, spec: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "NUMBERS_AT_ONCE", at_once)
    model, x = built(variant, spec), samples(candidates=True)
    scores = model(x.expand(2, *x.shape))
    weights = torch.randn(scores.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours = dict(zip(names, torch.autograd.grad((scores * weights).sum(), parameters), strict=True))
    for run in range(2):
        own = {name: values.detach()[run].clone() for name, values in built(variant, spec).state_dict().items()}
        leaves = {name: own[name].requires_grad_() for name in names}
        theirs = Literal(own, spec, training=True)(x[:, :FEATURES], x[:, FEATURES:].long())
        torch.testing.assert_close(scores[run].detach(), theirs.detach())
        gradients = torch.autograd.grad((theirs * weights).sum(), list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            torch.testing.assert_close(ours[name][run], gradient, rtol=1e-6, atol=1e-9, msg=f"{name} of {variant} {spec}")


@pytest.mark.parametrize(("images", "rows"), [(64, 2**14), (3, 2**14), (3, 7), (1, 1)])
@pytest.mark.parametrize(("variant", "spec"), VARIANTS[1::2])
def test_all_pairs_are_scored_in_their_order_in_whatever_pieces(
    variant: str, spec: str, images: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "IMAGES_AT_ONCE", images)
    monkeypatch.setattr(network, "ROWS_AT_ONCE", rows)
    model, x = built(variant, spec).eval(), samples(candidates=False)
    with torch.no_grad():
        scores = model(x.expand(2, *x.shape))
    own = {name: values[1] for name, values in model.state_dict().items()}
    theirs = Literal(own, spec, training=False)(x, torch.arange(PAIRS).expand(BATCH, -1))
    torch.testing.assert_close(scores[1], theirs)


def test_batch_norms_learn_the_statistics_torchs_would() -> None:
    inner = layers.InnerLayer(2, 4, 6, "relu", 4).double()
    x = torch.randn(2, 50, 4, dtype=torch.float64) * 3 + 5
    torch.nn.init.normal_(inner.linear.weight)
    torch.nn.init.normal_(inner.linear.bias)  # type: ignore[arg-type]
    inner(x), inner(x * 2)
    for j in range(2):
        first, last = torch.nn.BatchNorm1d(4).double(), torch.nn.BatchNorm1d(6).double()
        for batch in (x[j], x[j] * 2):
            last(F.linear(first(batch), inner.linear.weight[j], inner.linear.bias[j]))  # type: ignore[index]
        for ours, theirs in ((inner.entry, first), (inner.norm, last)):
            torch.testing.assert_close(ours.running_mean[j], theirs.running_mean)
            torch.testing.assert_close(ours.running_var[j], theirs.running_var)


def test_float32_is_as_good_as_it_can_be_far_from_the_origin() -> None:
    inner = layers.InnerLayer(1, 4, 6, "identity", 4)
    torch.nn.init.normal_(inner.linear.weight)
    torch.nn.init.normal_(inner.projection.weight)  # type: ignore[union-attr]
    x = torch.randn(1, 1000, 4) + 300
    exact = inner.double()(x.double()).float()
    torch.testing.assert_close(inner.float()(x), exact, rtol=1e-3, atol=1e-3)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_mixing_is_a_sum_over_senders(counts: list[int], receivers: int, senders: int, features: int) -> None:
    drawn = torch.Generator().manual_seed(sum(counts))
    gates = torch.randn(len(counts), receivers, senders, generator=drawn, dtype=torch.float64, requires_grad=True)
    outputs = torch.randn(senders, sum(counts), features, generator=drawn, dtype=torch.float64, requires_grad=True)
    pair = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    torch.testing.assert_close(mix(gates, outputs, counts), torch.einsum("rji,irf->jrf", gates[pair], outputs))
    if sum(counts):
        assert torch.autograd.gradcheck(lambda g, o: mix(g, o, counts), (gates, outputs))


def test_moments_have_right_values_and_gradients() -> None:
    x = torch.randn(3, 6, 2, dtype=torch.float64, requires_grad=True)
    found = moments(x)
    for group, covariance in zip(x, found.covariance, strict=True):
        torch.testing.assert_close(covariance, torch.cov(group.T, correction=0))
    torch.testing.assert_close(found.mean, x.mean(1))
    assert torch.autograd.gradcheck(lambda values: moments(values)[:2], (x,))


@pytest.mark.parametrize("spec", ["relu", "prelu", "or_ail"])
def test_a_run_does_not_depend_on_its_cohort(spec: str) -> None:
    x = samples(candidates=True)
    together, alone = built("tmnx", spec, 3, [4, 5, 6]), built("tmnx", spec, 1, [5])
    for model in (together, alone):
        for name, values in model.state_dict().items():
            if name.endswith("learnt.weight"):
                values += 0.25
    # In float64, through six layers with sums of at most 24 terms: reordered, they part by far less than 1e-12.
    torch.testing.assert_close(together(x.expand(3, *x.shape))[1], alone(x.unsqueeze(0))[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [2**23, 1], ids=["whole", "recomputed"])
def test_every_module_learns_its_own_prelu(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "NUMBERS_AT_ONCE", at_once)
    model, x = built("tmnx", "prelu"), samples(candidates=True)
    slopes = {name: values for name, values in model.named_parameters() if "activation" in name}
    assert [values.shape[1] for name, values in slopes.items() if "learnt" in name] == [3, 3, 3]
    gradients = torch.autograd.grad(model(x.expand(2, *x.shape)).square().sum(), list(slopes.values()))
    assert all(bool((gradient != 0).all()) for gradient in gradients)


def test_first_weights() -> None:
    model = family(SMALL | {"gater": 64, "vectors": 50, "variant": "tmn"}).build(2, [FEATURES], PAIRS, [4], "relu")
    model.initialise([1, 2])
    state = model.state_dict()
    assert not state["gater.last.weight"].any()
    assert float(state["gater.first.weight"].std()) == pytest.approx(0.1, rel=0.03)
    assert float(state["first.linear.weight"].abs().max()) == pytest.approx(FEATURES**-0.5, rel=0.05)
    assert float(state["inner.0.linear.weight"].abs().max()) == pytest.approx(4**-0.5, rel=0.05)
    assert not torch.equal(state["first.linear.weight"][0], state["first.linear.weight"][1])


def test_at_first_the_words_do_not_matter() -> None:
    own = family(SMALL).build(1, [FEATURES], PAIRS, [12], "or_ail")
    own.initialise([0])
    own.get_buffer("pairs").copy_(LISTED)
    with torch.no_grad():
        scores = own.eval()(torch.randn(1, BATCH, FEATURES))
    torch.testing.assert_close(scores, scores[:, :, :1].expand_as(scores))
    assert float(scores[0, :, 0].std()) > 0


COUNTS = [
    ("tmn", "relu", 437_929),
    ("tmn", "or_ail", 650_281),
    ("tmn", "or_xnor_ail_d", 437_929),
    ("tmnx", "silu", 1_148_713),
    ("tmnx", "xnor_nil", 1_163_720),
    ("tmnx", "or_xnor_il_p", 1_193_821),
    ("tmnx", "or_and_xnor_il_p", 1_193_821),
    ("tmnx", "or_and_xnor_il_d", 1_154_395),
    ("tmnx", "prelu", 1_148_713 + 73),
]


@pytest.mark.parametrize(("variant", "spec", "count"), COUNTS)
def test_networks_of_the_paper_have_its_sizes(variant: str, spec: str, count: int) -> None:
    own, activation = family({"name": "tmn", "variant": variant}), boolit.activation(spec)
    nominal = own.widths(64 if variant == "tmnx" else 16, 1)
    widths = [round_width(width, activation.divisor) for width in own.widths_for_activation(nominal, [512], 1962, activation)]
    assert own.parameters([512], 1962, widths, activation) == count
    with torch.device("meta"):
        assert sum(values[0].numel() for values in own.build(1, [512], 1962, widths, spec).parameters()) == count


def test_other_widths_are_matched_to_those_of_relu() -> None:
    own, relu = family({"name": "tmn"}), boolit.activation("relu")
    for spec in ("or_ail", "or_and_xnor_ail_d", "or_xnor_ail_p"):
        activation = boolit.activation(spec)
        widths = own.widths_for_activation([32], [512], 100, activation)
        assert own.parameters([512], 100, widths, activation) == pytest.approx(own.parameters([512], 100, [32], relu), rel=0.05)


@pytest.mark.parametrize(
    ("options", "width", "spec", "rule"),
    [
        ({"variant": "tmn"}, [16], "or_and_xnor_ail_d", "no width before or_and_xnor_ail_d gives 16 after it"),
        ({"variant": "tmn"}, [16], "or_and_xnor_ail_p", "no width before or_and_xnor_ail_p gives 16 after it"),
        ({"variant": "tmn"}, [8], "relu", "relu makes 8 of a width of 8, but modules of a TMN output 16"),
        ({"variant": "tmnx"}, [16, 16], "relu", "2 widths"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict[str, str], width: list[int], spec: str, rule: str) -> None:
    own, activation = family({"name": "tmn"} | options), boolit.activation(spec)
    with pytest.raises(UserError, match=rule):
        own.parameters([512], 9, own.widths_for_activation(width, [512], 9, activation), activation)


def test_a_budget_depth_or_picture_it_cannot_have_is_refused() -> None:
    relu = boolit.activation("relu")
    with pytest.raises(UserError, match="a TMN has one size"):
        family({"name": "tmn", "variant": "tmn"}).widths_for_budget(10**6, 1, [512], 9, relu)
    with pytest.raises(UserError, match=r"sweep.depth of 2: .* model.layers"):
        family({"name": "tmn"}).widths(64, 2)
    with pytest.raises(UserError, match=r"samples of shape \(3, 8, 8\)"):
        family({"name": "tmn"}).parameters([3, 8, 8], 9, [64], relu)


def test_a_kept_network_is_restored_with_its_pairs() -> None:
    model, x = built("tmnx", "or_ail").float().eval(), samples(candidates=False).float()
    sizes = {"inputs": [FEATURES], "outputs": PAIRS, "width": [12]}
    config = {"model": SMALL | {"variant": "tmnx"}, "activation": "or_ail", **sizes}
    kept = restore(RunConfig.from_dict(config), {name: values[1] for name, values in model.state_dict().items()})
    with torch.no_grad():
        # One run and two are different products, whose sums of at most 24 terms through six layers are ordered differently.
        ours, theirs = kept(x.unsqueeze(0))[0], model(x.expand(2, *x.shape))[1]
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_only_the_gater_has_another_rate() -> None:
    model = family(SMALL | {"gater_rate": 10.0}).build(1, [FEATURES], PAIRS, [12], "relu")
    names = {"gater.first.weight", "gater.norm.weight", "gater.norm.bias", "gater.last.weight"}
    assert model.rate_factors() == dict.fromkeys(names, 10.0)
