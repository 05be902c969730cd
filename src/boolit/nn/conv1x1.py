"""1×1 convolutions that are safe at any stride.

oneDNN, as torch 2.13 has it, writes past its buffer on processors with AVX2 and without AVX-512 when it computes the gradient
of the weights of a convolution that is all of: float32, channels last in memory, kernel 1×1, no padding, one group, fewer than
8 channels in the larger picture (the input; of a transposed one the output), a stride other than 1 in either direction that
divides the larger picture's sides (with transposed ones only after output padding). It gathers the pixels in use into a buffer
sized for the channels there are, and writes 8 for each pixel. The process then crashes, or computes something else.

Found by running forward and backward of 9,220 convolutions, every tensor and buffer between two guarded zones, with
``ONEDNN_MAX_CPU_ISA=AVX2``: sides 1–32, batches 1–33, 1–31 channels in, 1–24 out, kernels 1, 2, 3, 5 and 7, strides 1–4, equal
and not, dilations, 1–8 groups and depthwise, both memory orders, four float types, 1 to 3 dimensions, transposed ones too. No
other kind overran; of the 1,920 float32 ones in two dimensions none did with SSE41, AVX or AVX-512.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_BLOCK = 8  # channels oneDNN writes at once with AVX2


class Conv1x1(nn.Conv2d):
    """``nn.Conv2d`` of kernel 1 that leaves pixels out first and then has stride 1: the same numbers, parameters and names.

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
    """``nn.ConvTranspose2d`` of kernel 1 that spreads its pixels first and then has stride 1; made by `make_safe` only.

    Shape: as ``nn.ConvTranspose2d``.
    """

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        stride, ones = list(self.stride), [1, 1]
        added = self._output_padding(x, output_size, stride, [0, 0], ones, 2, ones)
        sides = ((side - 1) * step + 1 + more for side, step, more in zip(x.shape[-2:], stride, added, strict=True))
        spread = x.new_zeros(*x.shape[:-2], *sides)
        spread[..., :: stride[0], :: stride[1]] = x
        return F.conv2d(spread, self.weight.transpose(0, 1), self.bias)


def make_safe(layer: nn.Module) -> bool:
    """Gives a convolution that oneDNN may overrun its buffer with one of the classes above; returns whether it was one.

    Its parameters, hooks and place in the model stay as they are. A subclass of torch's convolutions has a forward of its own
    and is left alone.

    Example:
        >>> layer = nn.Conv2d(2, 8, 1, stride=2)
        >>> make_safe(layer), layer
        (True, Conv1x1(2, 8, kernel_size=(1, 1), stride=(2, 2)))
    """
    if not isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) or type(layer) not in _SAFE or layer.groups > 1:
        return False
    channels = layer.out_channels if layer.transposed else layer.in_channels
    whole = layer.padding in ((0, 0), "valid")
    if channels >= _BLOCK or not whole or layer.kernel_size != (1, 1) or layer.stride == (1, 1):
        return False
    layer.__class__ = _SAFE[type(layer)]
    return True


_SAFE: dict[type[nn.Module], type[Conv1x1 | ConvTranspose1x1]] = {nn.Conv2d: Conv1x1, nn.ConvTranspose2d: ConvTranspose1x1}
