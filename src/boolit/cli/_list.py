"""``boolit list`` and ``boolit doctor``: what there is to choose from, and what of it is active here.

A kind of thing is a function that returns a `Listing`, and one line in `LISTINGS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import boolit
from boolit.cli._terminal import output, plain_table, print_json
from boolit.lab.common.errors import UserError
from boolit.nn import Activation, Ensemble, Extremum, Gate, Gated, Pointwise, SignedGeomean, known_specs

if TYPE_CHECKING:
    from boolit.lab.doctor import Fact, Section

# What there is to choose from: every activation with its map and a line on what it computes.

FORMULAS = {
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
    "glu": "x σ(y), y from the second half",
    "swiglu": "x silu(y), y from the second half",
    "geglu": "x gelu(y), y from the second half",
    "bilinear": "x y, y from the second half",
    "max": "max(x, y), MaxOut",
    "min": "min(x, y)",
    "max_min_d": "max and min of each pair, GroupSort",
    "signed_geomean": "sgn(x y) √|x y|",
}
OPERATORS = {
    "implies": "x ⇒ y",
    "nimplies": "NOT (x ⇒ y)",
    "implied_by": "x ⇐ y",
    "nimplied_by": "NOT (x ⇐ y)",
}
FORMS = {"il": "exact", "ail": "approximate", "nil": "exact, normalised", "nail": "approximate, normalised"}


@dataclass(frozen=True)
class ActivationEntry:
    """One activation: ``map`` is channels in → out of a group, ``divisor`` what a width must be a multiple of."""

    spec: str
    map: tuple[int, int]
    divisor: int
    feature_factor: Fraction
    kind: str
    description: str

    @property
    def arrow(self) -> str:
        """The map as it is written."""
        return f"{self.map[0]}→{self.map[1]}"


def activation_entries() -> list[ActivationEntry]:
    """Every spec that takes no ending, registered ones included; by map, then by kind.

    Example:
        >>> [entry.arrow for entry in activations() if entry.spec in ("relu", "or_and_xnor_nail_d")]
        ['1→1', '2→3']
    """
    entries = [_entry(boolit.activation(spec)) for spec in known_specs()]
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    return sorted(entries, key=lambda entry: (entry.map, kinds.index(entry.kind)))


def _entry(module: Activation) -> ActivationEntry:
    kind, description = _kind(module), _description(module)
    return ActivationEntry(module.spec, module.map, module.divisor, module.feature_factor, kind, description)


def _kind(module: Activation) -> str:
    if isinstance(module, Gate):
        return "gate"
    if isinstance(module, Ensemble) and module.program is not None:
        return "duplicate" if module.strategy == "d" else "partition"
    return "baseline" if isinstance(module, Pointwise | Gated | Extremum | SignedGeomean | Ensemble) else "registered"


def _description(module: Activation) -> str:
    if isinstance(module, Gate):
        return f"{OPERATORS.get(module.op, f'x {module.op.upper()} y')}, {FORMS[module.form]}"
    if isinstance(module, Ensemble) and module.program is not None:
        members = ", ".join(op.upper() for op, _ in module.program.members)
        return f"{members}; {FORMS[module.program.members[0][1]]}"
    return FORMULAS.get(module.spec) or (inspect.getdoc(module) or "").partition("\n")[0]


# ``boolit list``: what there is to choose from.


@dataclass(frozen=True)
class Listing:
    """Groups of rows for people, with notes below; ``entries`` for programs."""

    columns: Sequence[str]
    groups: Mapping[str, Sequence[Sequence[str]]]
    entries: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def activations() -> Listing:
    """Every activation by its map."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    entries = activation_entries()
    for entry in entries:
        row = (entry.spec, entry.arrow, str(entry.divisor), str(entry.feature_factor), entry.description)
        groups.setdefault(f"{entry.arrow} {entry.kind}s", []).append(row)
    return Listing(
        columns=("spec", "map", "divisor", "factor", "computes"),
        groups=groups,
        entries=[
            {
                "spec": entry.spec,
                "map": list(entry.map),
                "divisor": entry.divisor,
                "feature_factor": float(entry.feature_factor),
                "kind": entry.kind,
                "description": entry.description,
            }
            for entry in entries
        ],
        notes=(
            "map: channels in → out; a width must be a multiple of the divisor; factor: channels out per channel in.",
            "Endings: _kN for groups of N channels (or_ail_k3), _halves for channel i with i + C/k as in GLU (xnor_il_halves).",
            "Duplicates (_d) give every gate every group, partitions (_p; _pu if uneven) give each its share.",
            "Any other ensemble: gates joined by _ (and_xor_il_d), members of any kind by + (max+xnor_ail_d).",
        ),
    )


def studies() -> Listing:
    """Every study that ships with boolit."""
    from boolit.lab.studies import list_studies

    found = list_studies()
    return Listing(
        columns=("study", "profiles", "is about"),
        groups={"studies": [(study.name, ", ".join(study.profiles), study.title) for study in found]},
        entries=[{"name": study.name, "profiles": study.profiles, "title": study.title} for study in found],
        notes=("boolit run STUDY trains one, boolit show STUDY says what it would train; a .toml file of your own works too.",),
    )


def figures() -> Listing:
    """Every figure that needs no training."""
    from boolit.lab.reports.figures import FIGURES

    return Listing(
        columns=("figure", "in the paper", "shows"),
        groups={"figures": [(name, entry.label or "–", entry.caption) for name, entry in FIGURES.items()]},
        entries=[{"name": name, "label": entry.label, "caption": entry.caption} for name, entry in FIGURES.items()],
        notes=("boolit figures NAME draws one.",),
    )


LISTINGS: dict[str, Callable[[], Listing]] = {"activations": activations, "studies": studies, "figures": figures}


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(LISTINGS)}.")] = "activations",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list for programs.")] = False,
) -> None:
    """Show what there is to choose from.

    Activations come with their maps (channels in → out) and what they compute.
    """
    if kind not in LISTINGS:
        raise UserError(f"there is no list of {kind!r}; choose from {', '.join(LISTINGS)}")
    listing = LISTINGS[kind]()
    if json:
        print_json(listing.entries)
    else:
        _print(listing)


def _print(listing: Listing) -> None:
    console = output()
    widths = [max(map(len, column)) for column in zip(listing.columns, *chain(*listing.groups.values()), strict=True)]
    for heading, rows in listing.groups.items():
        table = plain_table(*listing.columns)
        table.show_header = heading == next(iter(listing.groups))
        for column, width in zip(table.columns, widths, strict=True):
            column.min_width = width
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(f"[bold]{escape(heading)}[/]")
        console.print(table)
        console.print()
    for note in listing.notes:
        console.print(note, markup=False, style="dim")


# ``boolit doctor``: what is active, and why not.


def doctor(json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False) -> None:
    """Show what is active on this machine, and why not.

    Versions, compiled kernels and their threads, devices, optional packages, the folder for data. What is amiss is a
    warning with its fix; the exit code is 0 all the same.
    """
    from boolit.lab.doctor import examine

    sections = examine()
    if json:
        facts = {section.name: section.facts for section in sections}
        print_json({**facts, "warnings": [line for section in sections for line in section.warnings]})
    else:
        _print_section(sections)


def _print_section(sections: list[Section]) -> None:
    console = output()
    for section in sections:
        table = plain_table("name", "value")
        table.show_header = False
        table.columns[0].min_width = 2 + max(len(name) for each in sections for name in each.facts)
        table.columns[1].overflow = "fold"  # a path is to be seen to its end
        for name, fact in section.facts.items():
            label = name if name.isupper() else name.replace("_", " ")  # an environment variable keeps its name
            table.add_row(f"  {label}", escape(_in_words(fact)))
        console.print(f"[bold]{section.name}[/bold]")
        console.print(table)
    warnings = [line for section in sections for line in section.warnings]
    console.print()
    for line in warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(line)}", soft_wrap=True)
    if not warnings:
        console.print("[green]all is well[/green]")


def _in_words(fact: Fact) -> str:
    if fact is None:
        return "–"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, str | int):
        return str(fact)
    present = [f"{package} {version}" for package, version in fact.items() if version is not None]
    absent = [package for package, version in fact.items() if version is None]
    fix = [f"not installed: pip install {' '.join(absent)}"] if absent else []
    return "; ".join([*([", ".join(present)] if present else []), *fix])
