"""The paper's augmentation of images for the encoder."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from boolit.lab.datasets.embeddings import NUMBERS, ORDERS, TRIES, augmented_view, boxes, jitter_colors, resize

PICTURES = torch.randint(256, (6, 3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def chances(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, NUMBERS, generator=torch.Generator().manual_seed(seed))


def image(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


@given(st.integers(0, 2**31), st.integers(16, 300))
def test_crops_lie_inside_with_the_right_area_and_shape(seed: int, side: int) -> None:
    drawn = torch.Generator().manual_seed(seed)
    found = boxes(torch.rand(50, TRIES, 2, generator=drawn), torch.rand(50, 2, generator=drawn), side, side)
    top, left, tall, wide = found.unbind(1)
    assert (found >= 0).all()
    assert (top + tall <= side).all()
    assert (left + wide <= side).all()
    slack = 1 / side  # of rounding either side by half a pixel
    assert (tall * wide >= (0.7 - slack) * side**2 - 1).all()
    ratio = wide / tall
    assert (ratio <= 4 / 3 * (1 + 2 * slack)).all()
    assert (ratio >= 3 / 4 * (1 - 2 * slack)).all()


def test_crops_reach_every_place_and_size() -> None:
    drawn = torch.Generator().manual_seed(0)
    found = boxes(torch.rand(20_000, TRIES, 2, generator=drawn), torch.rand(20_000, 2, generator=drawn), 100, 100)
    assert found[:, 0].min() == 0
    assert (found[:, 0] + found[:, 2]).max() == 100
    area = found[:, 2] * found[:, 3] / 100**2
    assert area.min() < 0.705
    assert area.max() > 0.98
    assert (found[:, 3] > found[:, 2]).float().mean() == pytest.approx(0.5, abs=0.02)


def test_a_crop_that_never_fits_is_the_whole_image() -> None:
    widest = torch.tensor([1 - 1e-6, 1 - 1e-6]).expand(1, TRIES, 2)
    assert boxes(widest, torch.full((1, 2), 0.99), 64, 64).tolist() == [[0, 0, 64, 64]]


def test_the_first_crop_that_fits_is_taken() -> None:
    crops = torch.full((1, TRIES, 2), 1 - 1e-6)
    crops[0, 3] = torch.tensor([0.0, 0.5])
    assert boxes(crops, torch.zeros(1, 2), 100, 100).tolist() == [[0, 0, 84, 84]]  # √0.7


def test_whole_images_are_scaled_as_pillow_scales_them() -> None:
    scaled = resize(PICTURES, 23)
    theirs = [np.asarray(image(p).resize((23, 23), Image.Resampling.BILINEAR)).transpose(2, 0, 1) for p in PICTURES]
    assert (scaled.int() - torch.from_numpy(np.stack(theirs)).int()).abs().max() <= 1


def test_colours_are_changed_as_pillow_changes_them() -> None:
    factors = (0.7, 1.3, 0.9)
    drawn = torch.tensor([*((factor - 0.6) / 0.8 for factor in factors), 0.0])
    for number, order in enumerate(ORDERS):
        drawn[3] = (number + 0.5) / len(ORDERS)
        ours = jitter_colors(PICTURES[:1], drawn.unsqueeze(0))[0]
        theirs = image(PICTURES[0])
        for change in order:
            theirs = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[change](theirs).enhance(
                factors[change]
            )
        assert (ours.permute(1, 2, 0).int() - torch.from_numpy(np.array(theirs)).int()).abs().max() <= 1


def test_views_are_mirrored_half_the_time_unless_forbidden() -> None:
    drawn = chances(6)
    left, right = drawn.clone(), drawn.clone()
    left[:, 2 * TRIES + 2], right[:, 2 * TRIES + 2] = 0.49, 0.5
    assert torch.equal(augmented_view(PICTURES, left, 32, flip=True), augmented_view(PICTURES, right, 32, flip=True).flip(-1))
    assert torch.equal(augmented_view(PICTURES, left, 32, flip=False), augmented_view(PICTURES, right, 32, flip=False))


def test_a_image_s_view_does_not_depend_on_the_others() -> None:
    drawn = chances(6)
    together = augmented_view(PICTURES, drawn, 32, flip=True)
    assert together.shape == (6, 3, 32, 32)
    assert together.dtype == torch.uint8
    assert torch.equal(together[2:3], augmented_view(PICTURES[2:3], drawn[2:3], 32, flip=True))
