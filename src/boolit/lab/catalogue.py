"""What there is to choose from: activations, studies and figures, each with a line on what it is; known without torch.

A list is a function that returns a `Catalogue`, and one line in `CATALOGUES`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STUDIES = Path(__file__).parent / "studies" / "definitions"
# By map, channels in and out; tests compare it with the modules.
BASELINES: dict[tuple[int, int], dict[str, str]] = {
    (1, 1): {
        "relu": "max(0, x)",
        "leaky_relu": "x if x > 0, else 0.01 x",
        "prelu": "x if x > 0, else a x with a learnt a",
        "softplus": "log(1 + eˣ)",
        "elu": "x if x > 0, else eˣ − 1",
        "celu": "elu, smooth for any α (α = 1)",
        "selu": "elu, scaled to keep mean 0 and sd 1",
        "gelu": "x Φ(x)",
        "silu": "x σ(x)",
        "hardswish": "x clip(x + 3, 0, 6) / 6",
        "mish": "x tanh(log(1 + eˣ))",
        "softsign": "x / (1 + |x|)",
        "tanh": "tanh(x)",
        "sigmoid": "σ(x)",
        "identity": "x",
    },
    (2, 1): {
        "glu": "x σ(y), y from the second half",
        "swiglu": "x silu(y), y from the second half",
        "geglu": "x gelu(y), y from the second half",
        "bilinear": "x y, y from the second half",
        "max": "max(x, y), MaxOut",
        "min": "min(x, y)",
        "signed_geomean": "sgn(x y) √|x y|",
    },
    (2, 2): {"max_min_d": "max and min of each pair, GroupSort"},
}
OPERATIONS = {
    **{name: f"x {name.upper()} y" for name in ("and", "or", "xnor", "nand", "nor", "xor")},
    "implies": "x ⇒ y",
    "nimplies": "NOT (x ⇒ y)",
    "implied_by": "x ⇐ y",
    "nimplied_by": "NOT (x ⇐ y)",
}
FORMS = {"il": "exact", "ail": "approximate", "nil": "exact, normalised", "nail": "approximate, normalised"}
ENSEMBLES = {"p": ("or_xnor", "or_and_xnor"), "d": ("or_and", "or_xnor", "or_and_xnor")}  # of the paper
KINDS = ("baseline", "gate", "duplicate", "partition", "registered")


@dataclass(frozen=True)
class ActivationFacts:
    """One activation: ``map`` is channels in → out of a group, ``divisor`` what a width must be a multiple of."""

    spec: str
    map: tuple[int, int]
    divisor: int
    kind: str
    description: str

    @property
    def feature_factor(self) -> Fraction:
        """Channels out per channel in."""
        return Fraction(self.map[1], self.map[0])

    @property
    def arrow(self) -> str:
        """The map as it is written."""
        return f"{self.map[0]}→{self.map[1]}"


def list_activations() -> list[ActivationFacts]:
    """Every spec that takes no ending, registered ones included; by map, then by kind.

    Example:
        >>> [entry.arrow for entry in list_activations() if entry.spec in ("relu", "or_and_xnor_nail_d")]
        ['1→1', '2→3']
    """
    found = [
        ActivationFacts(spec, map_, map_[0], "baseline", text) for map_, own in BASELINES.items() for spec, text in own.items()
    ]
    for form, how in FORMS.items():
        found += [ActivationFacts(f"{op}_{form}", (2, 1), 2, "gate", f"{text}, {how}") for op, text in OPERATIONS.items()]
        for strategy, kind in (("d", "duplicate"), ("p", "partition")):
            for names in ENSEMBLES[strategy]:
                members = names.upper().split("_")
                out, divisor = (len(members), 2) if strategy == "d" else (1, 2 * len(members))
                text = f"{', '.join(members)}; {how}"
                found.append(ActivationFacts(f"{names}_{form}_{strategy}", (2, out), divisor, kind, text))
    found += _registered({entry.spec for entry in found})
    return sorted(found, key=lambda entry: (entry.map, KINDS.index(entry.kind)))


def _registered(built_in: set[str]) -> list[ActivationFacts]:
    """What plugins have added, which only its modules can tell of; there is none before the library is imported."""
    if "boolit.nn.specs" not in sys.modules:
        return []
    from boolit.nn import activation, known_specs

    modules = [activation(spec) for spec in known_specs() if spec not in built_in]
    return [
        ActivationFacts(made.spec, made.map, made.divisor, "registered", (inspect.getdoc(made) or "").partition("\n")[0])
        for made in modules
    ]


@dataclass(frozen=True)
class Catalogue:
    """Rows for people in groups, with notes below; ``entries`` for programs."""

    columns: Sequence[str]
    groups: Mapping[str, Sequence[Sequence[str]]]
    entries: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def activations() -> Catalogue:
    """Every activation by its map."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    found = list_activations()
    for each in found:
        row = (each.spec, each.arrow, str(each.divisor), str(each.feature_factor), each.description)
        groups.setdefault(f"{each.arrow} {each.kind}s", []).append(row)
    return Catalogue(
        columns=("spec", "map", "divisor", "factor", "computes"),
        groups=groups,
        entries=[
            {
                "spec": each.spec,
                "map": list(each.map),
                "divisor": each.divisor,
                "feature_factor": float(each.feature_factor),
                "kind": each.kind,
                "description": each.description,
            }
            for each in found
        ],
        notes=(
            "map: channels in → out; a width must be a multiple of the divisor; factor: channels out per channel in.",
            "Endings: _kN for groups of N channels (or_ail_k3), _halves for channel i with i + C/k as in GLU (xnor_il_halves).",
            "Duplicates (_d) give every gate every group, partitions (_p; _pu if uneven) give each its share.",
            "Any other ensemble: gates joined by _ (and_xor_il_d), members of any kind by + (max+xnor_ail_d).",
        ),
    )


def studies() -> Catalogue:
    """Every study that ships with boolit."""
    files = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(STUDIES.glob("*.toml"))}
    entries = [{"name": name, "profiles": list(file["profiles"]), "title": file["title"]} for name, file in files.items()]
    rows = [(entry["name"], ", ".join(entry["profiles"]), entry["title"]) for entry in entries]
    note = "boolit run STUDY trains one, boolit show STUDY says what it would train; a .toml file of your own works too."
    return Catalogue(("study", "profiles", "is about"), {"studies": rows}, entries, [note])


def figures() -> Catalogue:
    """Every figure that needs no training."""
    from boolit.lab.reports.figures import FIGURES

    entries = [{"name": name, "label": entry.label, "caption": entry.caption} for name, entry in FIGURES.items()]
    rows = [(name, entry.label or "–", entry.caption) for name, entry in FIGURES.items()]
    return Catalogue(("figure", "in the paper", "shows"), {"figures": rows}, entries, ["boolit figures NAME draws one."])


CATALOGUES: dict[str, Callable[[], Catalogue]] = {"activations": activations, "studies": studies, "figures": figures}
