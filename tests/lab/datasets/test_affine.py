"""The random affine transformation of images, against one pixel at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from boolit.lab.common.random import keys
from boolit.lab.datasets.images.augmentation import affine, affine_matrices, warp
from boolit.lab.training.recipe import AUGMENTATIONS


def origin(chances: list[float], height: int, width: int, x: float, y: float) -> tuple[float, float]:
    """Where the pixel at (x, y) of the new image comes from, in plain trigonometry."""
    rotation, scale, across, down, shear = (2 * chance - 1 for chance in chances)
    angle, factor = math.radians(10 * rotation), 1 + 0.2 * scale
    x, y = x - (width - 1) / 2 - 0.08 * width * across, y - (height - 1) / 2 - 0.08 * height * down
    # Clockwise as displayed, since y points downwards.
    x, y = (math.cos(angle) * x + math.sin(angle) * y) / factor, (-math.sin(angle) * x + math.cos(angle) * y) / factor
    x += math.tan(math.radians(0.3 * shear)) * y
    return x + (width - 1) / 2, y + (height - 1) / 2


@pytest.mark.parametrize(("height", "width"), [(28, 28), (5, 9)])
def test_every_pixel_is_the_nearest_of_its_origin(height: int, width: int) -> None:
    images = torch.randint(1, 256, (20, height, width), dtype=torch.uint8)
    chances = torch.rand(20, 5)
    result = warp(images, affine_matrices(chances, height, width))
    assert (result.dtype, result.shape) == (images.dtype, images.shape)
    zeros = 0
    for image, new, chance in zip(images.tolist(), result.tolist(), chances.tolist(), strict=True):
        for row in range(height):
            for column in range(width):
                x, y = origin(chance, height, width, column, row)
                if min(abs(x % 1 - 0.5), abs(y % 1 - 0.5)) < 1e-3:
                    continue  # as near to two pixels
                inside = 0 <= round(x) < width and 0 <= round(y) < height
                zeros += not inside
                assert new[row][column] == (image[round(y)][round(x)] if inside else 0)
    assert zeros > 20


def test_the_middle_of_all_ranges_changes_nothing() -> None:
    images = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    assert torch.equal(warp(images, affine_matrices(torch.full((3, 5), 0.5), 28, 28)), images)


@settings(max_examples=20)
@given(st.integers(0, 300))
def test_any_number_of_images_is_each_transformed_by_its_own(number: int) -> None:
    images, matrices = torch.rand(300, 7, 7), affine_matrices(torch.rand(300, 5), 7, 7)
    result = warp(images, matrices)
    if number:
        assert torch.equal(result[:number], warp(images[:number], matrices[:number]))


def test_the_ranges_are_the_papers() -> None:
    corners = affine_matrices(torch.cartesian_prod(*[torch.tensor([0.0, 0.5, 1.0])] * 5), 28, 28).double()
    determinant = corners[:, 0, 0] * corners[:, 1, 1] - corners[:, 0, 1] * corners[:, 1, 0]
    assert float(determinant.min()) == pytest.approx(0.8**2, rel=1e-5)
    assert float(determinant.max()) == pytest.approx(1.2**2, rel=1e-5)
    turned = torch.atan2(corners[:, 1, 0], corners[:, 0, 0]).rad2deg()
    assert (float(turned.min()), float(turned.max())) == pytest.approx((-10, 10), abs=1e-3)
    centre = corners @ torch.tensor([13.5, 13.5, 1.0], dtype=torch.float64) - 13.5
    assert float(centre.abs().max()) == pytest.approx(0.08 * 28, rel=1e-4)


def batch(runs: int) -> Tensor:
    return torch.arange(runs * 4 * 28 * 28).remainder(251).to(torch.uint8).view(runs, 4, 28, 28)


def test_every_run_and_step_has_its_own_and_the_cohort_does_not_matter() -> None:
    x = batch(3)[:1].expand(3, 4, 28, 28)
    moved = affine(x, keys([5, 6, 7], "augmentation"), 11)
    assert torch.equal(moved[1:2], affine(x[1:2], keys([6], "augmentation"), 11))
    assert not torch.equal(moved[0], moved[1])
    assert not torch.equal(moved, affine(x, keys([5, 6, 7], "augmentation"), 12))
    assert AUGMENTATIONS.get("affine") is affine
