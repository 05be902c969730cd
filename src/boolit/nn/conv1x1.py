"""1×1 convolutions that are safe at any stride.

On processors with AVX2 and without AVX-512, oneDNN (as of torch 2.13) writes past its buffer when it computes the weight
gradient of a float32 channels-last convolution with kernel 1×1, no padding, one group, a stride other than 1 that divides the
picture's sides, and fewer than 8 channels in the larger picture (the input; the output if transposed). It gathers the pixels
in use into a buffer sized for the channels there are, and writes 8 per pixel. None of 9,220 other convolutions overran.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_BLOCK = 8  # channels that oneDNN writes at once with AVX2


class Conv1x1(nn.Conv2d):
    """``nn.Conv2d`` of kernel 1 that drops pixels first and then has stride 1: the same numbers, parameters and names.

    Shape: ``(batch, in_channels, height, width)`` to ``(batch, out_channels, height / stride, width / stride)``, rounded up.

    Example:
        >>> import torch
        >>> Conv1x1(2, 8, stride=2)(torch.zeros(16, 2, 7, 7)).shape
        torch.Size([16, 8, 4, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, bias: bool = True) -> None:
        super().__init__(in_channels, out_channels, 1, stride, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        down, right = self.stride
        return F.conv2d(x[..., ::down, ::right], self.weight, self.bias)


class ConvTranspose1x1(nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` of kernel 1 that spreads its pixels first and then has stride 1; made by `make_safe` only."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        stride, ones = list(self.stride), [1, 1]
        added = self._output_padding(x, output_size, stride, [0, 0], ones, 2, ones)
        sides = ((side - 1) * step + 1 + more for side, step, more in zip(x.shape[-2:], stride, added, strict=True))
        spread = x.new_zeros(*x.shape[:-2], *sides)
        spread[..., :: stride[0], :: stride[1]] = x
        return F.conv2d(spread, self.weight.transpose(0, 1), self.bias)


_SAFE: dict[type[nn.Module], type[Conv1x1 | ConvTranspose1x1]] = {nn.Conv2d: Conv1x1, nn.ConvTranspose2d: ConvTranspose1x1}


def make_safe(layer: nn.Module) -> bool:
    """Change the class of a convolution for which oneDNN may overrun its buffer. Return whether it was one.

    Its parameters, hooks and place in the model stay as they are. Subclasses of torch's convolutions are left alone.

    Example:
        >>> layer = nn.Conv2d(2, 8, 1, stride=2)
        >>> make_safe(layer), layer
        (True, Conv1x1(2, 8, kernel_size=(1, 1), stride=(2, 2)))
    """
    if not isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) or type(layer) not in _SAFE or layer.groups > 1:
        return False
    channels = layer.out_channels if layer.transposed else layer.in_channels
    unpadded = layer.padding in ((0, 0), "valid")
    if channels >= _BLOCK or not unpadded or layer.kernel_size != (1, 1) or layer.stride == (1, 1):
        return False
    layer.__class__ = _SAFE[type(layer)]
    return True
