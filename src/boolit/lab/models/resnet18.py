"""ResNet-18 without its last layer, with torchvision's names.

It is the frozen encoder of the transfer experiments (s:transfer), and the encoder of SRAN for 1, 3 or 6 channels (tab:sran).
"""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from boolit.nn.conv1x1 import Conv1x1

FEATURES = 512
STAGES, BLOCKS = 4, 2


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut.

    Shape: ``(batch, before, height, width)`` to ``(batch, width, height / stride, width / stride)``.
    """

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        stride = width // before
        self.conv1, self.bn1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        shortcut = [Conv1x1(before, width, stride, bias=False), nn.BatchNorm2d(width)] if stride > 1 else []
        self.downsample = nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        result = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(result)) + self.downsample(x), inplace=True)


class Resnet18(nn.Module):
    """Features of images.

    Shape: ``(batch, channels, height, width)`` to ``(batch, 512)``.

    Example:
        >>> import torch
        >>> Resnet18().eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 512])
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        for stage in range(1, STAGES + 1):
            width = 32 << stage
            before = width // 2 if stage > 1 else width
            blocks = (BasicBlock(width if block else before, width) for block in range(BLOCKS))
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))

    def forward(self, x: Tensor) -> Tensor:
        return self.after_conv1(self.conv1(x))

    def after_conv1(self, x: Tensor) -> Tensor:
        """Return the features from the output of the first convolution."""
        x = F.max_pool2d(F.relu(self.bn1(x), inplace=True), 3, stride=2, padding=1)
        for stage in range(1, STAGES + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x.mean((2, 3))


def fold_batch_norms(network: Resnet18) -> Resnet18:
    """Return a copy for evaluation with every batch norm multiplied into the convolution before it."""
    result = copy.deepcopy(network).eval()
    for layers in list(result.modules()):
        for convolution, norm in (("conv1", "bn1"), ("conv2", "bn2"), ("0", "1")):
            if isinstance(after := getattr(layers, norm, None), nn.BatchNorm2d):
                setattr(layers, convolution, fuse_conv_bn_eval(getattr(layers, convolution), after))
                setattr(layers, norm, nn.Identity())
    return result
