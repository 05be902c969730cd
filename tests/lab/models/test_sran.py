"""SRAN is the published network with the paper's layers: data flow, symmetries, counts, widths and dropout."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.datasets import Dataset, Split
from boolit.lab.models import Family, family, restore
from boolit.lab.models.resnet18 import Resnet18
from boolit.lab.models.sran.network import encode_pairs, encode_panels, encode_rows
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, Recipe, StackedTraining
from boolit.lab.training.checkpoint import Checkpoint
from boolit.nn.width import count_parameters

pytestmark = pytest.mark.usefixtures("one_thread")

SPECS = ("relu", "prelu", "or_ail", "xnor_il", "max_min_d", "or_xnor_ail_p", "or_and_xnor_ail_pu", "or_and_xnor_nail_d")
PANELS = (16, 13, 13)
ROWS = [[0, 1, 2], [3, 4, 5], *([6, 7, candidate] for candidate in range(8, 16))]
PAIRS = [(0, 1), *((0, row) for row in range(2, 10)), *((1, row) for row in range(2, 10))]


def small(**options: object) -> Family:
    return family({"name": "sran", "size": "small", "channels": 2, "dropout": 0.0, **options})


def widths_of(sran: Family, spec: str, width: int = 12) -> list[int]:
    return sran.widths_for_activation(sran.widths(width, 1), PANELS, 8, boolit.activation(spec))


def straight(values: dict[str, Tensor], x: Tensor, spec: str, normalised: bool) -> Tensor:
    """The same network with every row and pair as a picture of its own, in training mode, written straight down."""

    def encoder(name: str, pictures: Tensor) -> Tensor:
        out = pictures
        kernels = [key for key in values if key.startswith(name) and values[key].dim() == 4]
        for place, key in enumerate(kernels):
            kernel = values[key].shape[-1]
            norm = f"{name}.bn1" if place == 0 else f"{name}.stages.{3 * place - 2}"
            out = F.conv2d(out, values[key], stride=max(2, kernel // 2), padding=kernel // 2)
            out = F.relu(F.batch_norm(out, None, None, values[f"{norm}.weight"], values[f"{norm}.bias"], training=True))
        return out.mean((2, 3))

    def gated(name: str, out: Tensor) -> Tensor:
        places = sorted({int(key.split(".")[1]) for key in values if key.startswith(name)})
        activation, slopes = boolit.activation(spec), [p for p in places if f"{name}.{p}.function.weight" in values]
        linear = [p for p in places if f"{name}.{p}.weight" in values and values[f"{name}.{p}.weight"].dim() == 2]
        activated = {"row_module": 2, "pair_module": 2, "rule_module": 3}[name]
        for number, place in enumerate(linear):
            out = F.linear(out, values[f"{name}.{place}.weight"], values[f"{name}.{place}.bias"])
            if number == activated:
                return out
            if normalised:
                norm = f"{name}.{place + 1}"
                out = F.layer_norm(out, out.shape[-1:], values[f"{norm}.weight"], values[f"{norm}.bias"])
            out = F.prelu(out, values[f"{name}.{slopes[number]}.function.weight"]) if slopes else activation(out)
        return out

    x = (255 - x) / 255
    batch = len(x)
    pictures = [(x[:, row].flatten(0, 1)) for row in range(16)]
    panels = encoder("panel_encoder", torch.cat([panel.view(batch, 1, *x.shape[2:]) for panel in pictures])).view(16, batch, -1)
    stacked = [x[:, row] for row in ROWS]
    seen_rows = encoder("row_encoder", torch.cat(stacked)).view(10, batch, -1)
    both = [*PAIRS, *((second, first) for first, second in PAIRS)]
    seen_pairs = encoder("pair_encoder", torch.cat([torch.cat([stacked[a], stacked[b]], 1) for a, b in both]))
    seen_pairs = seen_pairs.view(2, 17, batch, -1).sum(0)
    rows = [
        torch.cat([gated("row_module", torch.cat([panels[p] for p in row], 1)), seen_rows[i]], 1) for i, row in enumerate(ROWS)
    ]
    rules = []
    for number, (a, b) in enumerate(PAIRS):
        pair = sum(gated("pair_module", torch.cat([rows[i], rows[j]], 1)) for i, j in ((a, b), (b, a)))
        rules.append(gated("rule_module", torch.cat([pair, seen_pairs[number]], 1))[:, :-9])
    return torch.stack([(rules[0] * (rules[1 + i] + rules[9 + i])).sum(1) for i in range(8)], 1)


@pytest.mark.parametrize(
    ("spec", "layout"), [*((spec, "layernorm") for spec in SPECS), ("relu", "published"), ("or_ail", "published")]
)
def test_each_run_is_the_network_written_straight_down(spec: str, layout: str) -> None:
    draw = torch.Generator().manual_seed(0)
    sran = small(layout=layout)
    stacked = sran.build(2, PANELS, 8, widths_of(sran, spec), spec).double()
    stacked.initialise([1, 2])
    with torch.no_grad():
        for values in stacked.parameters():
            if values.dim() == 2:
                values.add_(0.3 * torch.randn(values.shape, generator=draw))
    x = 255 * torch.rand(2, 3, *PANELS, generator=draw, dtype=torch.float64)
    outputs = stacked(x)
    parameters = dict(stacked.named_parameters())
    weights = torch.randn(outputs.shape, generator=draw)
    gradients = torch.autograd.grad((outputs * weights).sum(), list(parameters.values()))
    for run in range(2):
        own = {name: values[run].detach().requires_grad_() for name, values in parameters.items()}
        theirs = straight(own, x[run], spec, layout == "layernorm")
        torch.testing.assert_close(outputs[run], theirs, rtol=1e-8, atol=1e-8)
        found = torch.autograd.grad((theirs * weights[run]).sum(), list(own.values()))
        for gradient, other in zip(gradients, found, strict=True):
            torch.testing.assert_close(gradient[run], other, rtol=1e-6, atol=1e-6)


def test_resnets_see_rows_and_pairs_as_pictures_of_3_and_6_channels() -> None:
    x = torch.rand(1, 16, 24, 24)
    rows = torch.cat([x[:, row] for row in ROWS])
    pairs = torch.cat([torch.cat([rows[[a]], rows[[b]]], 1) for a, b in PAIRS])
    with torch.no_grad():
        one, three, six = (Resnet18(channels).eval() for channels in (1, 3, 6))
        torch.testing.assert_close(encode_panels(one, x)[0], one(x[0].unsqueeze(1)), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(encode_rows(three, x)[0], three(rows), rtol=1e-4, atol=1e-4)
        expected = six(pairs) + six(pairs.roll(3, 1))
        torch.testing.assert_close(encode_pairs(six, x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("spec", ["relu", "or_ail"])
def test_scores_follow_the_candidates_and_ignore_the_order_of_the_first_rows(spec: str, training: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    sran = small()
    network = sran.build(1, PANELS, 8, widths_of(sran, spec), spec).double()
    network.initialise([0])
    network.train(training)
    x = 255 * torch.rand(1, 4, *PANELS, generator=draw, dtype=torch.float64)
    order = torch.randperm(8, generator=draw)
    with torch.no_grad():
        scores = network(x)
        assert float(scores.std(2).min()) > 1e-3
        torch.testing.assert_close(network(x[:, :, [*range(8), *(8 + order)]]), scores[..., order])
        torch.testing.assert_close(network(x[:, :, [3, 4, 5, 0, 1, 2, *range(6, 16)]]), scores)
        assert not torch.allclose(network(x[:, :, [1, 0, *range(2, 16)]]), scores)


def test_seven_activations_are_exchanged_and_encoders_keep_relu() -> None:
    with torch.device("meta"):
        network = family({"name": "sran"}).network((16, 160, 160), 8, [1536, 512, 2048, 1024, 1024, 512, 512], "silu")
    exchanged = [module.spec for module in network.modules() if isinstance(module, boolit.nn.Activation)]
    assert exchanged == ["silu"] * 7
    assert len([module for module in network.modules() if isinstance(module, nn.LayerNorm)]) == 7
    assert network.rule_module[-1].out_features == 521
    assert network.resize == 224


def test_three_gates_share_512_pairs_as_171_171_170() -> None:
    sran, activation = family({"name": "sran"}), boolit.activation("or_and_xnor_ail_pu")
    widths = sran.widths_for_activation(sran.widths(512, 1), PANELS, 8, activation)
    assert widths == [1536, 1024, 2048, 1024, 1024, 1024, 1024]
    assert [size for _, size in activation.program.shares(512)] == [171, 171, 170]
    assert sran.parameters(PANELS, 8, widths, activation) == 44_574_473


def test_embeddings_are_as_wide_behind_every_activation_as_its_groups_allow() -> None:
    sran = family({"name": "sran"})
    found = {spec: boolit.activation(spec).out_features(widths_of(sran, spec, 512)[1]) for spec in ("relu", "or_ail")}
    assert found == {"relu": 512, "or_ail": 512}
    assert boolit.activation("or_and_xnor_ail_d").out_features(widths_of(sran, "or_and_xnor_ail_d", 512)[6]) == 513


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.integers(1, 6).map(lambda n: 12 * n),
    st.sampled_from(["layernorm", "published"]),
    st.integers(1, 12),
)
def test_the_count_of_parameters_is_right(spec: str, width: int, layout: str, channels: int) -> None:
    sran, activation = small(layout=layout, channels=channels), boolit.activation(spec)
    widths = sran.widths_for_activation(sran.widths(width, 1), PANELS, 8, activation)
    with torch.device("meta"):
        built = sran.network(PANELS, 8, widths, spec)
    assert sran.parameters(PANELS, 8, widths, activation) == count_parameters(built)


@settings(max_examples=20, deadline=None)
@given(st.integers(20_000, 3_000_000), st.sampled_from(SPECS), st.sampled_from(["layernorm", "published"]))
def test_any_budget_is_met_by_the_nearest_width(budget: int, spec: str, layout: str) -> None:
    sran, activation = small(layout=layout), boolit.activation(spec)

    def count(size: int) -> int:
        return sran.parameters(PANELS, 8, sran.widths_for_activation(sran.widths(size, 1), PANELS, 8, activation), activation)

    widths = sran.widths_for_budget(budget, 1, PANELS, 8, activation)
    size, step = widths[0] // 3, activation.divisor
    assert all(width % step == 0 for width in widths)
    reached = abs(sran.parameters(PANELS, 8, widths, activation) - budget)
    assert all(reached <= abs(count(other) - budget) for other in (size - step, size + step) if other > 0)


@pytest.mark.parametrize("spec", ["relu", "or_ail", "or_and_xnor_nail_d"])
@pytest.mark.parametrize("size", ["small", "paper"])
def test_what_a_sample_leaves_for_the_backward_pass_is_estimated_within_a_factor_of_2(
    numbers_kept: Callable[[nn.Module, Tensor], float], spec: str, size: str
) -> None:
    inputs, batch = (16, 40, 40), 1
    sran = family({"name": "sran", "size": size, "resize": 0})
    network = sran.network(inputs, 8, widths_of(sran, spec), spec)
    numbers = numbers_kept(network, torch.rand(batch, *inputs)) / batch
    assert 0.5 < sran.saved_numel(inputs, 8, widths_of(sran, spec), boolit.activation(spec)) / numbers < 2


FIRST = "layer1.0.conv1.weight"


def test_convolutions_of_resnets_begin_with_the_variance_of_torchvision() -> None:
    sran = family({"name": "sran"})
    first = sran.build(1, (16, 160, 160), 8, widths_of(sran, "relu"), "relu")
    first.initialise([3])
    (name,) = (
        name for name, _ in first.named_parameters() if name.startswith("row_") and name.endswith("layer1.0.conv1.weight")
    )
    weight = first.get_parameter(name)[0].detach()
    theirs = nn.init.kaiming_normal_(torch.empty(weight.shape), mode="fan_out", nonlinearity="relu")
    assert float(weight.std()) == pytest.approx(float(theirs.std()), rel=0.05)


def test_other_layers_begin_as_torch_s_own() -> None:
    sran = small(channels=8)
    first = sran.build(1, PANELS, 8, widths_of(sran, "relu"), "relu")
    first.initialise([3])
    for name in ("row_module.0.weight", "panel_encoder.stages.0.weight"):
        weight = first.get_parameter(name)[0].detach()
        limit = weight[0].numel() ** -0.5
        assert 0.95 * limit < float(weight.abs().max()) <= limit


def job(seeds: tuple[int, ...], dropout: float = 0.5, epochs: int = 2) -> Job:
    """Problems whose answer is the panel that is as grey as the row."""
    draw = torch.Generator().manual_seed(0)
    greys = torch.randint(0, 256, (24, 3, 1, 1, 1), generator=draw).expand(24, 3, 3, 8, 8).reshape(24, 9, 8, 8)
    y = torch.randint(0, 8, (24,), generator=draw)
    x = torch.cat([greys[:, :8], torch.randint(0, 256, (24, 8, 1, 1), generator=draw).expand(24, 8, 8, 8)], 1).float()
    x[torch.arange(24), 8 + y] = greys[:, 8].float()
    split = Split(x, y)
    recipe = Recipe.model_validate({"epochs": epochs, "batch": 8, "learning_rate": 0.01})
    sran = small(dropout=dropout)
    widths = tuple(widths_of(sran, "or_ail"))
    dataset = Dataset({"train": split, "valid": split, "test": split}, "classes", 8)
    return Job(dataset, sran, "or_ail", widths, tuple(recipe for _ in seeds), seeds)


def trained(work: Job) -> StackedTraining:
    training = StackedTraining(work)
    while not training.done:
        training.step()
    return training


def test_what_drops_out_is_of_the_run_and_the_step_only(in_double: Callable[[Job], Job]) -> None:
    many, alone, never = (trained(in_double(work)) for work in (job((4, 5)), job((5,)), job((5,), dropout=0.0)))
    # Adam divides a gradient by at least 1e-8: in float64 reordered sums move a weight by less than 1e-4 in six steps.
    torch.testing.assert_close(many.flat.values[1], alone.flat.values[0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(alone.flat.values, never.flat.values, atol=1e-3)
    sran = small(dropout=0.5)
    network = sran.build(2, PANELS, 8, widths_of(sran, "relu"), "relu")
    network.initialise([0, 1])
    (dropout,) = (layer for layer in network.modules() if type(layer).__name__ == "SingleRunDropout")
    x = 255 * torch.rand(1, 2, *PANELS).expand(2, -1, -1, -1, -1)
    first = network(x).detach()
    assert torch.equal(network(x), first)
    dropout.step = 1
    assert not torch.allclose(network(x), first)
    state = network.state_dict()
    assert not any("run_keys" in name for name in state)
    network.eval()
    before = network(x)
    dropout.step = 2
    assert torch.equal(network(x), before)


def test_it_goes_on_from_a_checkpoint_within_an_epoch_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole, broken, again = trained(job((4, 5))), StackedTraining(job((4, 5))), StackedTraining(job((4, 5)))
    for _ in range(4):
        broken.step()
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(broken, 1.0)
    checkpoint.restore(again)
    while not again.done:
        again.step()
    torch.testing.assert_close(again.flat.values, whole.flat.values, rtol=0, atol=0)


def test_it_learns_and_is_restored() -> None:
    training = trained(job((0,), dropout=0.0, epochs=15))
    losses = [float(loss) for loss in training.history["train_loss"]]
    assert losses[-1] < 0.5 * losses[0]
    x = training.job.dataset.splits["test"].x
    config = {
        "model": training.job.family.model_dump(),
        "inputs": [16, 8, 8],
        "outputs": 8,
        "width": list(training.job.widths),
        "activation": "or_ail",
    }
    network = restore(RunConfig.from_dict(config), {name: values[0] for name, values in training.model.state_dict().items()})
    torch.testing.assert_close(network(x.unsqueeze(0)), training.model.eval()(x.unsqueeze(0)))


def test_large_ones_are_trained_alone() -> None:
    assert family({"name": "sran"}).trains_alone
    assert not small().trains_alone


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    sran, relu = small(), boolit.activation("relu")
    with pytest.raises(UserError, match=r"sweep.depth of 2: .*leave sweep.depth out"):
        sran.widths(16, 2)
    with pytest.raises(UserError, match=r"2 widths \(\[8, 8\]\).*give 7, or one number"):
        sran.parameters(PANELS, 8, [8, 8], relu)
    with pytest.raises(UserError, match=r"samples of shape \(28, 28\) with 10 outputs: .*use the dataset iraven"):
        sran.parameters((28, 28), 10, widths_of(sran, "relu"), relu)
    with pytest.raises(ValueError, match="channels"):
        small(channels=0)
