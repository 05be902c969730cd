"""Widths and parameters of the large networks: ResNet-50s on CIFAR, SRAN on I-RAVEN, TMN and TMNx on MIT-States."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import torch

import boolit
from boolit.lab.models.preact_resnet import PreactResnet
from boolit.lab.models.sran import Sran
from boolit.lab.models.tmn import GatingNetwork, Tmn, TmnNetwork
from boolit.lab.paper import table_rows
from boolit.lab.paper.verification.check import Check, count_and_run
from boolit.lab.paper.verification.mnist import in_unit
from boolit.nn.width import count_parameters, round_width

# tab:resnet50-cifar10 and tab:resnet50-cifar100: every kind of activation has five width factors; the columns are headed by the
# means of the counts over the rows.

RESNET, IMAGE, SMALL_IMAGE = PreactResnet(), (3, 32, 32), (1, 3, 8, 8)
HEADINGS = ("6M", "10M", "23M", "67M", "225M")
RESNET_KINDS = (
    # a spec that stands for its kind; widths inside the blocks of each stage at the third factor; parameters with 10 classes
    ("1→1", "relu", "64 128 256 512", (5_868_426, 10_334_026, 23_509_194, 66_835_402, 221_391_306)),
    ("2→2", "or_and_ail_d", "64 128 256 512", (5_868_426, 10_334_026, 23_509_194, 66_835_402, 221_391_306)),
    ("2→1", "or_ail", "96 192 384 768", (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650)),
    ("partition of 2", "or_xnor_ail_p", "96 192 384 768", (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650)),
    ("partition of 3", "or_and_xnor_ail_p", "90 192 378 768", (5_287_054, 9_417_886, 22_276_732, 66_616_804, 230_571_766)),
    ("2→3", "or_and_xnor_ail_d", "48 96 192 384", (6_319_108, 11_125_536, 22_907_018, 62_094_410, 197_762_762)),
)
NARROW = {0: "12 26 52 102", 1: "26 52 102 204"}  # of 2→3, at factors that are no multiples of anything
# CIFAR-100 has 90 classes more, each with one weight per channel of the embedding and a bias.
MORE_CLASSES = {"or_and_xnor_ail_p": 183_690}
MORE_CLASSES_OF_OTHERS = 184_410


def check_resnets() -> Iterator[Check]:
    """Each kind at each factor for both datasets, some widths, and the headings as means over the rows."""
    for kind, spec, widths, counts in RESNET_KINDS:
        third = " ".join(map(str, resnet_widths(spec, 2)))
        yield Check(f"{kind}: widths at the third factor", f"~{HEADINGS[2]}", third, expected=widths)
        for place, exact in enumerate(counts):
            yield from _resnet(kind, spec, place, exact)
    for place, widths in NARROW.items():
        own = " ".join(map(str, resnet_widths("or_and_xnor_ail_d", place)))
        yield Check(f"2→3: widths at factor {place + 1}", f"~{HEADINGS[place]}", own, expected=widths)
    slopes = _resnet_parameters("prelu", 0, 10) - _resnet_parameters("relu", 0, 10)  # the stem keeps ReLU
    yield Check("activations that are exchanged, by the slopes of PReLU", 48, slopes)
    for classes in (10, 100):
        rows = table_rows(f"tab:resnet50-cifar{classes}")
        for place, heading in enumerate(HEADINGS):
            mean = sum(_resnet_parameters(spec, place, classes) for spec in rows) / len(rows)
            name = f"mean of {len(rows)} activations, {classes} classes, ~{heading}"
            yield Check(name, heading, in_unit(mean, heading))


def resnet_widths(spec: str, place: int) -> list[int]:
    """The widths inside the blocks of the network in a column.

    Example:
        >>> resnet_widths("or_ail", 2)
        [96, 192, 384, 768]
    """
    return RESNET.paper_widths(boolit.activation(spec))[place]


def _resnet(kind: str, spec: str, place: int, exact: int) -> Iterator[Check]:
    heading, more = f"~{HEADINGS[place]}", MORE_CLASSES.get(spec, MORE_CLASSES_OF_OTHERS)
    for name, classes, expected in (("CIFAR-10", 10, exact), ("CIFAR-100", 100, exact + more)):
        count = _resnet_parameters(spec, place, classes)
        if place == 0:  # the smallest network of a kind also runs
            count = count_and_run(RESNET, IMAGE, classes, resnet_widths(spec, 0), spec, torch.zeros(SMALL_IMAGE))
        yield Check(f"{kind}, {name}, {heading}", heading, count, expected=expected)


def _resnet_parameters(spec: str, place: int, classes: int) -> int:
    return RESNET.parameters(IMAGE, classes, resnet_widths(spec, place), boolit.activation(spec))


# tab:sran: as published, and with the paper's layer norms and activations.

PUBLISHED, NORMALISED = Sran(layout="published", resize=32), Sran(resize=32)  # smaller panels, to run fast
EMBEDDING, PANELS, CANDIDATES = 512, (16, 160, 160), 8
ENCODERS = (("panels", 11_170_240), ("rows", 11_176_512), ("pairs of rows", 11_185_920))
MODULES = ("rows", "pairs", "rules")
SRAN_KINDS = (
    # a spec that stands for its kind; parameters of the three gated modules, and of the whole; what the table prints
    ("as published", PUBLISHED, "relu", (3_147_776, 5_245_440, 2_104_329), 44_030_217, "44.0M"),
    ("1→1", NORMALISED, "relu", (3_151_872, 6_825_472, 2_108_425), 45_618_441, "45.6M"),
    ("2→2", NORMALISED, "or_and_ail_d", (3_151_872, 6_825_472, 2_108_425), 45_618_441, "45.6M"),
    ("2→1", NORMALISED, "or_ail", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
    ("partition of 2", NORMALISED, "or_xnor_ail_p", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
    ("partition of 3", NORMALISED, "or_and_xnor_ail_pu", (3_153_408, 5_514_752, 2_373_641), 44_574_473, "44.6M"),
)
UNEVEN = {"or_and_xnor_ail_p": "or_and_xnor_ail_pu"}  # 512 pairs have no three equal shares, but 171, 171 and 170
IN_SRAN = {Fraction(1): "45.6M", Fraction(1, 2): "44.6M"}  # what the table prints, by feature factor
ONLY_NORMS = 13_312
SRAN_NOTE = "the paper says layer norms were added; these alone give 44.0M, so the layers were found by the counts"


def check_sran() -> Iterator[Check]:
    """Encoders, the modules of each kind, and every row of the table."""
    for (name, exact), count in zip(ENCODERS, _part_counts(PUBLISHED, "relu"), strict=False):
        yield Check(f"encoder of {name}", "44.0M in all", count, expected=exact)
    for kind, family, spec, modules, exact, printed in SRAN_KINDS:
        counts = _part_counts(family, spec)[len(ENCODERS) :]
        for name, own, count in zip(MODULES, modules, counts, strict=True):
            yield Check(f"{kind}: module of {name}", f"{printed} in all", count, expected=own)
        widths, panels = sran_widths(family, spec), torch.zeros(1, *PANELS)
        count = count_and_run(family, PANELS, CANDIDATES, widths, spec, panels)
        yield Check(f"{kind}: all", printed, count, expected=exact)
    rows = {row: _sran_parameters(NORMALISED, UNEVEN.get(row, row)) for row in table_rows("tab:sran")}
    for row, count in rows.items():
        printed = IN_SRAN[boolit.activation(row).feature_factor]
        yield Check(f"row {row}", printed, f"{count / 1e6:.1f}M", note=SRAN_NOTE if row == "relu" else "")
    yield Check("slopes of PReLU, one per activation", 7, rows["prelu"] - rows["relu"])
    norms = 2 * sum(PUBLISHED.widths(EMBEDDING, 1))  # not what separates the first two rows of the table
    yield Check("layer norms alone", "1.6M more", norms, expected=ONLY_NORMS, slip=True, note=SRAN_NOTE)


def sran_widths(family: Sran, spec: str) -> list[int]:
    """The seven pre-activation widths.

    Example:
        >>> sran_widths(NORMALISED, "or_ail")
        [1536, 1024, 2048, 1024, 1024, 1024, 1024]
    """
    return family.widths_for_activation(family.widths(EMBEDDING, 1), PANELS, CANDIDATES, boolit.activation(spec))


def _sran_parameters(family: Sran, spec: str) -> int:
    return family.parameters(PANELS, CANDIDATES, sran_widths(family, spec), boolit.activation(spec))


def _part_counts(family: Sran, spec: str) -> list[int]:
    """The parameters of the three encoders, then of the three gated modules."""
    with torch.device("meta"):
        network = family.network(PANELS, CANDIDATES, sran_widths(family, spec), spec)
    return [count_parameters(part) for part in network.children()]


# tab:tmn-og and tab:tmnx, every row of both.

FEATURES, PAIRS = (512,), 1962
TMN, TMNX, TMNX_EQUAL = Tmn(variant="tmn"), Tmn(variant="tmnx"), Tmn(variant="tmnx", sizes="equal")
NOMINAL = {"tmn": 16, "tmnx": 64}
TMN_KINDS = (
    # table; a spec that stands for its kind; its width, its parameters to the last one, and as the table prints them
    ("TMN, 1→1", TMN, "relu", 16, 437_929, "438k"),
    ("TMN, 2→2", TMN, "or_and_ail_d", 16, 437_929, "438k"),
    ("TMN, 2→1", TMN, "or_ail", 32, 650_281, "650k"),
    ("TMNx, 1→1", TMNX, "relu", 64, 1_148_713, "1.15M"),
    ("TMNx, 2→2", TMNX, "or_and_ail_d", 64, 1_148_713, "1.15M"),
    ("TMNx, 2→1", TMNX, "or_ail", 70, 1_163_720, "1.16M"),
    ("TMNx, partition of 2", TMNX, "or_xnor_ail_p", 72, 1_193_821, "1.19M"),
    ("TMNx, partition of 3", TMNX, "or_and_xnor_ail_p", 72, 1_193_821, "1.19M"),
    ("TMNx, 2→3", TMNX, "or_and_xnor_ail_d", 60, 1_154_395, "1.15M"),
    ("TMNx, 2→3, hidden version of the table", TMNX_EQUAL, "or_and_xnor_ail_d", 64, 1_224_009, "1.22M"),
)
# What the tables print, by feature factor; in tab:tmnx, partitions have a width of their own.
IN_TMN = {Fraction(1): "438k", Fraction(1, 2): "650k"}
IN_TMNX = {Fraction(1): "1.15M", Fraction(1, 2): "1.16M", Fraction(3, 2): "1.15M"}
IN_PARTITIONS = "1.19M"
SWAPPED_GATER = 611_849  # parameters of a TMN with OR_AIL, if the ReLU of the gater were changed as well
GATER_NOTE = "the paper says the gater's activation is changed too, but its count has the gater with 64 units of ReLU"


def check_tmns() -> Iterator[Check]:
    """Width and count of each kind, then every row of both tables, and what the text says otherwise."""
    for kind, family, spec, width, exact, printed in TMN_KINDS:
        yield Check(f"{kind}: width", width, tmn_widths(family, spec)[0])
        count = count_and_run(family, FEATURES, PAIRS, tmn_widths(family, spec), spec, torch.zeros(1, FEATURES[0] + 3))
        yield Check(f"{kind}: parameters", printed, count, expected=exact)
    for label, family, printed_of in (("tab:tmn-og", TMN, IN_TMN), ("tab:tmnx", TMNX, IN_TMNX)):
        for spec in table_rows(label):
            activation = boolit.activation(spec)
            printed = IN_PARTITIONS if activation.divisor > 2 else printed_of[activation.feature_factor]
            yield Check(f"{label}, {spec}", printed, in_thousands(_tmn_parameters(family, spec)))
    yield Check(
        "TMN, OR_AIL in the gater as well",
        "650k",
        _gater_replaced("or_ail"),
        expected=SWAPPED_GATER,
        slip=True,
        note=GATER_NOTE,
    )


def tmn_widths(family: Tmn, spec: str) -> list[int]:
    """The pre-activation width.

    Example:
        >>> tmn_widths(TMNX, "or_xnor_ail_p")
        [72]
    """
    activation = boolit.activation(spec)
    widths = family.widths_for_activation([NOMINAL[family.variant]], FEATURES, PAIRS, activation)
    return [round_width(width, activation.divisor) for width in widths]


def in_thousands(count: int) -> str:
    """As the tables print it.

    Example:
        >>> in_thousands(437_929), in_thousands(1_148_713)
        ('438k', '1.15M')
    """
    return f"{count / 1e6:.2f}M" if count >= 10**6 else f"{count / 1e3:.0f}k"


def _tmn_parameters(family: Tmn, spec: str) -> int:
    return family.parameters(FEATURES, PAIRS, tmn_widths(family, spec), boolit.activation(spec))


def _gater_replaced(spec: str) -> int:
    """Return the parameters of a TMN whose gater has the activation too."""
    with torch.device("meta"):
        network = TMN.network(FEATURES, PAIRS, tmn_widths(TMN, spec), spec)
        assert isinstance(network, TmnNetwork)
        gater = GatingNetwork(2 * TMN.vectors, TMN.gater, sum(network.gate_counts), spec)
    return count_parameters(network) - count_parameters(network.gater) + count_parameters(gater)
