"""AutoAugment's policy: every operation as Pillow does it, and every image through the sub-policy that was drawn for it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import keys, uniform
from boolit.lab.datasets.images.augmentation import OPERATIONS, POLICY, autoaugment_cifar10
from boolit.lab.training.recipe import AUGMENTATIONS

GREY = (128, 128, 128)
Pillow = Callable[[Image.Image, float], Image.Image]


def images(n: int, seed: int = 0, side: int = 32) -> Tensor:
    """Noise, soft gradients of low contrast, and images of one or two colors, in turn."""
    drawn = np.random.default_rng(seed)
    found = []
    for i in range(n):
        color = drawn.integers(0, 256, (3, 1, 1))
        slope = np.linspace(-40, 40, side)[:, None] + drawn.normal(0, 9, (3, side, side))
        kinds = [
            drawn.integers(0, 256, (3, side, side)),
            (color + slope).clip(0, 255),
            np.broadcast_to(color, (3, side, side)),
        ]
        found.append(torch.from_numpy(kinds[i % 3].astype(np.uint8)))
        found[-1][:, 0, 0] = int(drawn.integers(0, 256)) if i % 6 == 5 else found[-1][:, 0, 0]
    return torch.stack(found)


def by_pillow(x: Tensor, operation: Pillow, numbers: list[float]) -> Tensor:
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in x]
    done = [np.array(operation(image, number)) for image, number in zip(images, numbers, strict=True)]
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2)


def ours(name: str, x: Tensor, magnitude: int, sign: int) -> Tensor:
    return by_pillow(x, lambda image, _: OPERATIONS[name](image, magnitude / 9, sign), [0] * len(x))


def moved(*coefficients: Callable[[float], float]) -> Pillow:
    return lambda image, v: image.transform(
        image.size, Image.Transform.AFFINE, [each(v) for each in coefficients], fillcolor=GREY
    )


def zero(_: float) -> float:
    return 0.0


def one(_: float) -> float:
    return 1.0


def same(v: float) -> float:
    return v


# What Pillow does, and the number it takes at a magnitude of 0 … 9 and a sign, by the policy's published ranges.
REFERENCES: dict[str, tuple[Pillow, Callable[[int, int], float]]] = {
    "auto_contrast": (lambda image, _: ImageOps.autocontrast(image), lambda _, __: 0),
    "equalize": (lambda image, _: ImageOps.equalize(image), lambda _, __: 0),
    "invert": (lambda image, _: ImageOps.invert(image), lambda _, __: 0),
    "solarize": (lambda image, v: ImageOps.solarize(image, int(v)), lambda m, _: math.ceil(256 - 256 * m / 9)),
    "posterize": (lambda image, v: ImageOps.posterize(image, int(v)), lambda m, _: round(8 - 4 * m / 9)),
    "color": (lambda image, v: ImageEnhance.Color(image).enhance(v), lambda m, s: 1 + s * m / 10),
    "contrast": (lambda image, v: ImageEnhance.Contrast(image).enhance(v), lambda m, s: 1 + s * m / 10),
    "brightness": (lambda image, v: ImageEnhance.Brightness(image).enhance(v), lambda m, s: 1 + s * m / 10),
    "sharpness": (lambda image, v: ImageEnhance.Sharpness(image).enhance(v), lambda m, s: 1 + s * m / 10),
    "rotate": (lambda image, v: image.rotate(v, fillcolor=GREY), lambda m, _: 30 * m / 9),
    "shear_y": (moved(one, zero, zero, same, one, zero), lambda m, s: s * 0.3 * m / 9),
    "translate_x": (moved(one, zero, same, zero, one, zero), lambda m, s: s * 150 / 331 * 32 * m / 9),
    "translate_y": (moved(one, zero, zero, zero, one, same), lambda m, s: s * 150 / 331 * 32 * m / 9),
}


def used() -> set[tuple[str, int]]:
    return {(line[i], int(line[i + 2])) for line in POLICY for i in (0, 3)}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("name", "magnitude"), sorted(used()))
def test_every_operation_of_the_policy_is_pillows_to_the_last_grey_level(name: str, magnitude: int, sign: int) -> None:
    x = images(24)
    operation, number = REFERENCES[name]
    theirs = by_pillow(x, operation, [number(magnitude, sign)] * len(x))
    assert torch.equal(ours(name, x, magnitude, sign), theirs)


def test_the_policy_has_25_sub_policies_of_two_operations() -> None:
    assert len(POLICY) == 25
    assert {name for name, _ in used()} == set(OPERATIONS) == set(REFERENCES)
    assert sum(float(line[i]) for line in POLICY for i in (1, 4)) == pytest.approx(26.5)
    assert sum(int(line[i]) for line in POLICY for i in (2, 5)) == 267


def one_by_one(x: Tensor, chances: Tensor) -> Tensor:
    """The policy on one image after the other, with Pillow."""
    done = []
    for image, (mirrored, which, *rest) in zip(x, chances.tolist(), strict=True):
        image = Image.fromarray(image.permute(1, 2, 0).numpy())
        image = ImageOps.mirror(image) if mirrored < 0.5 else image
        for place in range(2):
            name, probability, magnitude = POLICY[int(25 * which)][3 * place : 3 * place + 3]
            whether, sign = rest[2 * place : 2 * place + 2]
            operation, number = REFERENCES[name]
            if whether < float(probability):
                image = operation(image, number(int(magnitude), -1 if sign < 0.5 else 1))
        done.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
    return torch.stack(done)


def test_a_batch_is_each_image_through_its_own_sub_policy() -> None:
    x, run_keys = images(300).view(2, 150, 3, 32, 32), keys([3, 4], "augmentation")
    chances = uniform(run_keys, 9, (150, 6)).flatten(0, 1)
    before = x.clone()
    assert torch.equal(autoaugment_cifar10(x, run_keys, 9).flatten(0, 1), one_by_one(x.flatten(0, 1), chances))
    assert torch.equal(x, before)


def test_every_run_and_step_has_its_own_and_the_cohort_does_not_matter() -> None:
    x = images(40).expand(3, 40, 3, 32, 32)
    done = autoaugment_cifar10(x, keys([5, 6, 7], "augmentation"), 11)
    assert (done.dtype, done.shape) == (torch.uint8, x.shape)
    assert torch.equal(done[1:2], autoaugment_cifar10(x[1:2], keys([6], "augmentation"), 11))
    assert not torch.equal(done[0], done[1])
    assert not torch.equal(done, autoaugment_cifar10(x, keys([5, 6, 7], "augmentation"), 12))
    assert AUGMENTATIONS.get("autoaugment-cifar10") is autoaugment_cifar10


@pytest.mark.parametrize("x", [torch.zeros(1, 2, 3, 8, 8), torch.zeros(1, 2, 1, 8, 8, dtype=torch.uint8)])
def test_other_samples_are_refused(x: Tensor) -> None:
    with pytest.raises(UserError, match=r"samples of torch.* and shape \(., 8, 8\): autoaugment-cifar10 is for bytes"):
        autoaugment_cifar10(x, keys([0], "augmentation"), 0)
