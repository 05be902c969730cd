"""1×1 convolutions that are safe at any stride.

On processors with AVX2 and without AVX-512, oneDNN (as of torch 2.13) writes past its buffer when it computes the weight
gradient of a float32 channels-last convolution with kernel 1×1, no padding, one group, a stride other than 1 that divides the
image's sides, and fewer than 8 input channels: it gathers the pixels in use into a buffer sized for the channels there are, and
writes 8 per pixel.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


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
        """Return the convolution of the pixels in use."""
        down, right = self.stride
        return F.conv2d(x[..., ::down, ::right], self.weight, self.bias)
