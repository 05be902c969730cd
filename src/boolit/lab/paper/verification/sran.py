"""tab:sran: parameters of the Stratified Rule-Aware Networks, as published and with the paper's layer norms and activations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch

import boolit
from boolit.lab.models.sran import Sran
from boolit.lab.models.sran.network import Network
from boolit.lab.paper.verification.check import Check, Value, agreed
from boolit.nn.width import count_parameters

PUBLISHED, NORMALISED = Sran(layout="published", resize=32), Sran(resize=32)  # what runs once sees panels of 32 pixels
EMBEDDING, PANELS, CANDIDATES = 512, (16, 160, 160), 8
ENCODERS = (("panels", 11_170_240), ("rows", 11_176_512), ("pairs of rows", 11_185_920))
MODULES = ("rows", "pairs", "rules")
KINDS = (
    # a spec that stands for its kind; parameters of the three gated modules, and of the whole; what the table prints
    ("as published", PUBLISHED, "relu", (3_147_776, 5_245_440, 2_104_329), 44_030_217, "44.0M"),
    ("1→1", NORMALISED, "relu", (3_151_872, 6_825_472, 2_108_425), 45_618_441, "45.6M"),
    ("2→2", NORMALISED, "or_and_ail_d", (3_151_872, 6_825_472, 2_108_425), 45_618_441, "45.6M"),
    ("2→1", NORMALISED, "or_ail", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
    ("partition of 2", NORMALISED, "or_xnor_ail_p", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
    ("partition of 3", NORMALISED, "or_and_xnor_ail_pu", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
)
UNEVEN = {"or_and_xnor_ail_p": "or_and_xnor_ail_pu"}  # 512 pairs have no three equal shares, but 171, 171 and 170
ROWS = {
    "relu": "45.6M",
    "prelu": "45.6M",
    "celu": "45.6M",
    "selu": "45.6M",
    "gelu": "45.6M",
    "silu": "45.6M",
    "max": "44.6M",
    "max_min_d": "45.6M",
    "xnor_ail": "44.6M",
    "or_ail": "44.6M",
    "or_and_ail_d": "45.6M",
    "or_xnor_ail_p": "44.6M",
    "or_xnor_ail_d": "45.6M",
    "or_and_xnor_ail_p": "44.6M",
}
ONLY_NORMS = 13_312
NOTE = "the paper says layer norms were added; these alone give 44.0M, so the layers were found by the counts"


def checks() -> Iterator[Check]:
    """Encoders, the modules of each kind, and every row of the table."""
    for place, (name, exact) in enumerate(ENCODERS):
        yield Check(f"encoder of {name}", "44.0M in all", of_encoder(place), expected=exact)
    for kind, family, spec, modules, exact, printed in KINDS:
        for place, (name, own) in enumerate(zip(MODULES, modules, strict=True)):
            yield Check(f"{kind}: module of {name}", f"{printed} in all", of_module(family, spec, place), expected=own)
        yield Check(f"{kind}: all", printed, parameters(family, spec), expected=exact)
    for row, printed in ROWS.items():
        spec = UNEVEN.get(row, row)
        yield Check(f"row {row}", printed, in_millions(_formula(NORMALISED, spec)), note=NOTE if row == "relu" else "")
    yield Check("slopes of PReLU, one an activation", 7, _formula(NORMALISED, "prelu") - _formula(NORMALISED, "relu"))
    yield _norms()


def parameters(family: Sran, spec: str) -> Value:
    """By formula and by building the network; they must agree."""
    return agreed(formula=_formula(family, spec), built=count_parameters(_built(family, spec)))


def of_encoder(place: int) -> Value:
    """One encoder's, by formula and by building it."""
    built = list(_built(PUBLISHED, "relu").children())[place]
    return agreed(formula=PUBLISHED.of_encoders()[place], built=count_parameters(built))


def of_module(family: Sran, spec: str, place: int) -> Value:
    """One gated module's, by formula and by building it."""
    built = list(_built(family, spec).children())[len(ENCODERS) + place]
    formula = family.of_modules(widths_of(family, spec), boolit.activation(spec))[place]
    return agreed(formula=formula, built=count_parameters(built))


def widths_of(family: Sran, spec: str) -> list[int]:
    """The seven pre-activation widths.

    Example:
        >>> widths_of(NORMALISED, "or_ail")
        [1536, 1024, 2048, 1024, 1024, 1024, 1024]
    """
    return family.widths_for_activation(family.widths(EMBEDDING, 1), PANELS, CANDIDATES, boolit.activation(spec))


def in_millions(count: int) -> str:
    """As the table prints it."""
    return f"{count / 1e6:.1f}M"


def _formula(family: Sran, spec: str) -> int:
    return family.parameters(PANELS, CANDIDATES, widths_of(family, spec), boolit.activation(spec))


@lru_cache(maxsize=1)
def _built(family: Sran, spec: str) -> Network:
    """A network that was built, and run once, which its shapes must survive."""
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        network = family.network(PANELS, CANDIDATES, widths_of(family, spec), spec)
    with torch.inference_mode():
        network.to_empty(device="cpu").eval()(torch.zeros(1, *PANELS))
    return network.to("meta")


def _norms() -> Check:
    """What layer norms add to the published network: not what separates the first two rows of the table."""
    more = 2 * sum(PUBLISHED.widths(EMBEDDING, 1))
    return Check("layer norms alone", "1.6M more", more, expected=ONLY_NORMS, slip=True, note=NOTE)
