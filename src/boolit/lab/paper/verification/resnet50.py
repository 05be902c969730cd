"""tab:resnet50-cifar10 and tab:resnet50-cifar100: widths and parameters of the pre-activation ResNet-50s.

Every kind of activation has five width factors; the columns are headed by the means of what they give over the tables' rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

import boolit
from boolit.lab.models.preact_resnet import PreactResnet
from boolit.lab.paper.verification.check import Check, Value, agreed
from boolit.lab.paper.verification.mnist_mlp import rounded
from boolit.nn.width import count_parameters

PICTURE, SMALL_PICTURE = (3, 32, 32), (3, 8, 8)
HEADINGS = ("6M", "10M", "23M", "67M", "225M")
KINDS = (
    # a spec that stands for its kind; widths inside the blocks of each stage at the third factor; parameters with 10 classes
    ("1→1", "relu", "64 128 256 512", (5_868_426, 10_334_026, 23_509_194, 66_835_402, 221_391_306)),
    ("2→2", "or_and_ail_d", "64 128 256 512", (5_868_426, 10_334_026, 23_509_194, 66_835_402, 221_391_306)),
    ("2→1", "or_ail", "96 192 384 768", (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650)),
    ("partition of 2", "or_xnor_ail_p", "96 192 384 768", (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650)),
    ("partition of 3", "or_and_xnor_ail_p", "90 192 378 768", (5_287_054, 9_417_886, 22_276_732, 66_616_804, 230_571_766)),
    ("2→3", "or_and_xnor_ail_d", "48 96 192 384", (6_319_108, 11_125_536, 22_907_018, 62_094_410, 197_762_762)),
)
NARROW = {0: "12 26 52 102", 1: "26 52 102 204"}  # of 2→3, at factors that are no multiples of anything
# Every further class has as many weights as the embedding has channels, and a bias; 90 of them from CIFAR-10 to CIFAR-100.
MORE_CLASSES = {"or_and_xnor_ail_p": 183_690}
MORE_CLASSES_OF_OTHERS = 184_410
ROWS = (
    "relu",
    "prelu",
    "silu",
    "max",
    "max_min_d",
    "xnor_ail",
    "or_ail",
    "or_and_ail_d",
    "or_xnor_ail_p",
    "or_xnor_ail_d",
    "or_and_xnor_ail_p",
    "or_and_xnor_ail_d",
)


def checks() -> Iterator[Check]:
    """Each kind at each factor for both datasets, some widths, and the headings as means over the rows."""
    for kind, spec, widths, counts in KINDS:
        yield Check(f"{kind}: widths at the third factor", f"~{HEADINGS[2]}", _written(widths_of(spec, 2)), expected=widths)
        for place, exact in enumerate(counts):
            yield from _cell(kind, spec, place, exact)
    for place, widths in NARROW.items():
        name = f"2→3: widths at factor {place + 1}"
        yield Check(name, f"~{HEADINGS[place]}", _written(widths_of("or_and_xnor_ail_d", place)), expected=widths)
    yield _slopes()
    for classes in (10, 100):
        for place, heading in enumerate(HEADINGS):
            mean = sum(_formula(spec, place, classes) for spec in ROWS) / len(ROWS)
            yield Check(f"mean of {len(ROWS)} activations, {classes} classes, ~{heading}", heading, rounded(mean, heading))


def widths_of(spec: str, place: int) -> list[int]:
    """The widths inside the blocks of the network in a column.

    Example:
        >>> widths_of("or_ail", 2)
        [96, 192, 384, 768]
    """
    return PreactResnet().of_paper(boolit.activation(spec))[place]


def _cell(kind: str, spec: str, place: int, exact: int) -> Iterator[Check]:
    heading, more = f"~{HEADINGS[place]}", MORE_CLASSES.get(spec, MORE_CLASSES_OF_OTHERS)
    for name, classes, expected in (("CIFAR-10", 10, exact), ("CIFAR-100", 100, exact + more)):
        yield Check(f"{kind}, {name}, {heading}", heading, parameters(spec, place, classes), expected=expected)


def parameters(spec: str, place: int, classes: int) -> Value:
    """By formula and by building the network; they must agree."""
    return agreed(formula=_formula(spec, place, classes), built=_built(spec, place, classes))


def _formula(spec: str, place: int, classes: int) -> int:
    return PreactResnet().parameters(PICTURE, classes, widths_of(spec, place), boolit.activation(spec))


def _built(spec: str, place: int, classes: int) -> int:
    """The count of a network that is built; the smallest one of its kind is also run once, which its shapes must survive."""
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        network = PreactResnet().network(PICTURE, classes, widths_of(spec, place), spec)
    if place == 0:
        with torch.inference_mode():
            network.to_empty(device="cpu").eval()(torch.zeros(1, *SMALL_PICTURE))
    return count_parameters(network)


def _slopes() -> Check:
    """PReLU learns one slope an activation; the stem's stays ReLU."""
    more = _formula("prelu", 0, 10) - _formula("relu", 0, 10)
    return Check("activations that are exchanged, by the slopes of PReLU", 48, more)


def _written(widths: list[int]) -> str:
    return " ".join(map(str, widths))
