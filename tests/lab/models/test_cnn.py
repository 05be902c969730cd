"""The MNIST CNN: widths and counts of the paper, and layers."""

import pytest
import torch
from torch import nn

import boolit
from boolit.errors import UserError
from boolit.lab.models import family

MNIST = ([28, 28], 10)
# facts: conv 1-4, conv 5-6, linear 1, linear 2 and the count with six batch norms, for 2^14, 2^16 and 2^18 (small structure).
SMALL = {
    "relu": [(13, 19, 26, 19, 15_607), (26, 40, 53, 40, 64_501), (53, 80, 106, 80, 258_992)],
    "or_ail": [(18, 28, 36, 28, 15_970), (36, 56, 74, 56, 62_912), (76, 114, 152, 114, 265_212)],
    "max_min_d": [(12, 18, 26, 18, 14_022), (26, 40, 52, 40, 64_100), (52, 80, 106, 80, 255_416)],
    "or_and_xnor_ail_d": [(10, 16, 20, 16, 15_058), (20, 32, 42, 32, 60_000), (42, 64, 86, 64, 247_972)],
}
LARGE = {
    "relu": (32, 65, 131, 131, 262, 262, 1049, 524, 4_209_476),
    "or_ail": (46, 92, 184, 184, 370, 370, 1482, 740, 4_195_936),
}


@pytest.mark.parametrize("spec", SMALL)
def test_widths_of_the_small_structure(spec: str) -> None:
    cnn, gate = family({"name": "cnn"}), boolit.activation(spec)
    for exponent, (first, later, linear, last, count) in zip((14, 16, 18), SMALL[spec], strict=True):
        widths = cnn.widths_for_budget(2**exponent, 1, *MNIST, gate)
        assert widths == [*[first] * 4, later, later, linear, last]
        assert cnn.parameters(*MNIST, widths, gate) == count


@pytest.mark.parametrize("spec", LARGE)
def test_widths_of_the_large_structure(spec: str) -> None:
    cnn, gate = family({"name": "cnn"}), boolit.activation(spec)
    widths = cnn.widths_for_budget(2**22, 1, *MNIST, gate)
    assert (*widths, cnn.parameters(*MNIST, widths, gate)) == LARGE[spec]


def test_structure_changes_where_it_is_told() -> None:
    gate = boolit.activation("relu")
    assert family({"name": "cnn", "small_below": 100_000}).widths_for_budget(2**18, 1, *MNIST, gate)[:2] == [8, 16]


# Counts of the sweeps behind tab:cnn-mnist, with three batch norms.
@pytest.mark.parametrize(
    ("spec", "count"),
    [("relu", 15_517), ("or_ail", 15_842), ("max_min_d", 13_938), ("or_and_xnor_ail_d", 14_986), ("or_xnor_ail_pu", 15_842)],
)
def test_the_sweeps_normalize_every_second_convolution(spec: str, count: int) -> None:
    cnn, gate = family({"name": "cnn", "normalized": "first"}), boolit.activation(spec)
    widths = cnn.widths_for_budget(2**14, 1, *MNIST, gate)
    assert cnn.parameters(*MNIST, widths, gate) == count
    norms = cnn.network(*MNIST, widths, spec).norm
    assert [isinstance(norm, nn.BatchNorm2d) for norm in norms] == [True, False] * 3


@pytest.mark.parametrize("channels", [None, 3])
def test_outputs(channels: int | None) -> None:
    inputs = [9, 11] if channels is None else [channels, 9, 11]
    network = family({"name": "cnn"}).network(inputs, 5, [12] * 8, "or_xnor_ail_p" if channels else "or_and_xnor_nail_d")
    x = torch.randn(4, *inputs)
    assert network(x).shape == (4, 5)
    # Convolution, batch norm and activation as torch has them, channels first.
    images = network.norm[0](network.convolution[0](x if channels else x.unsqueeze(1)))
    expected = network.activation[0].along(1)(images)
    seen: list[torch.Tensor] = []
    network.activation[0].register_forward_hook(lambda *call: seen.append(call[2]))
    network(x)
    torch.testing.assert_close(seen[0].movedim(-1, 1), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cnn: cnn.network([7, 28], 5, [4] * 8, "relu"), "at least 8 pixels"),
        (lambda cnn: cnn.network([28, 28], 5, [4] * 7, "relu"), "give a width for each"),
        (lambda cnn: cnn.widths(4, 2), "leave sweep.depth out"),
        (lambda cnn: cnn.widths(4, 1), "use 'small' or 'large'"),
    ],
)
def test_wrong_sizes_are_refused(call: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(family({"name": "cnn"}))  # type: ignore[operator]
