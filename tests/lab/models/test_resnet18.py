"""The encoder is torchvision's ResNet-18 without its last layer."""

import torch

from boolit.lab.models.resnet18 import Resnet18, fold_batch_norms
from boolit.nn.width import count_parameters

STATISTICS = ("weight", "bias", "running_mean", "running_var")


def torchvision_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the network without its last layer, as torchvision has them."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)} | statistics("bn1", 64)
    for stage in range(1, 5):
        for number in range(2):
            width = 32 << stage
            before = width // 2 if stage > 1 and number == 0 else width
            block = f"layer{stage}.{number}"
            shapes |= {f"{block}.conv1.weight": (width, before, 3, 3)} | statistics(f"{block}.bn1", width)
            shapes |= {f"{block}.conv2.weight": (width, width, 3, 3)} | statistics(f"{block}.bn2", width)
            if before != width:
                shapes |= {f"{block}.downsample.0.weight": (width, before, 1, 1)}
                shapes |= statistics(f"{block}.downsample.1", width)
    return shapes


def statistics(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{statistic}": (channels,) for statistic in STATISTICS}


def test_names_and_shapes_are_torchvision_s() -> None:
    own = {name: tuple(values.shape) for name, values in Resnet18().state_dict().items() if "num_batches" not in name}
    assert own == torchvision_shapes()
    assert count_parameters(Resnet18()) == 11_176_512  # published: 11,689,512 with the 513,000 of the last layer


def test_a_picture_shrinks_by_32() -> None:
    network, sizes = Resnet18().eval(), []
    network.get_submodule("layer4").register_forward_hook(lambda _, __, output: sizes.append(output.shape))
    network(torch.zeros(1, 3, 224, 224))
    assert sizes == [(1, 512, 7, 7)]


def test_folded_batch_norms_change_nothing_but_the_rounding() -> None:
    draw = torch.Generator().manual_seed(0)
    network = Resnet18()
    for values in network.state_dict().values():
        if values.dim() == 1:
            values.copy_(0.5 + torch.rand(values.shape, generator=draw))
    x = torch.randn(2, 3, 64, 64, generator=draw)
    with torch.no_grad():
        plain, quick = network.eval()(x), fold_batch_norms(network)(x)
    assert torch.allclose(plain, quick, rtol=1e-4, atol=1e-5 * float(plain.abs().max()))
    assert float(plain.std()) > 0.01
    assert not any("running" in name for name in fold_batch_norms(network).state_dict())
    assert any("running" in name for name in network.state_dict())
