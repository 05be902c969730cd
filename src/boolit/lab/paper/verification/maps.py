"""Channels in → out of every activation in the paper's tables, and the widths that follow from them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import boolit
from boolit.lab.paper.verification.check import Check, agreed, uniform
from boolit.lab.paper.verification.transfer import TABLES, head_rows
from boolit.nn.width import round_width

# Nominal width, partition, the width printed for it (tab:transfer-nparam-big, tab:transfer-nparam-512, tab:tmnx).
WIDTHS = (
    (650, "or_xnor_ail_p", 648),
    (650, "or_and_xnor_ail_p", 648),
    (512, "or_xnor_ail_p", 512),
    (512, "or_and_xnor_ail_p", 510),
    (70, "or_xnor_ail_p", 72),
    (70, "or_and_xnor_ail_p", 72),
)


def checks() -> Iterator[Check]:
    """Maps by kind, the three maps the paper misprints, and the rule that rounds a width."""
    rows = [row for row in head_rows() if row.table == TABLES[0] and row.map]
    for printed in dict.fromkeys(row.map for row in rows):
        specs = [row.activation for row in rows if row.map == printed]
        name = f"{len(specs)} activations, {specs[0]} … {specs[-1]}"
        yield Check(name, printed, uniform({spec: measured(spec) for spec in specs}))
    yield from _slips()
    for nominal, spec, width in WIDTHS:
        yield Check(f"width {nominal} rounded for {spec}", width, round_width(nominal, boolit.activation(spec).divisor))


def measured(spec: str) -> str:
    """The map the module states, if it also is what happens to a tensor of 12 channels."""
    module = boolit.activation(spec)
    inputs, outputs = module.map
    happened = module(torch.zeros(3, 12)).shape[-1] * inputs / 12
    return str(agreed(stated=f"{inputs}→{outputs}", happened=f"{inputs}→{happened:g}"))


def _slips() -> Iterator[Check]:
    misprints = (
        ("or_and_xnor_ail_d", "3→2", "2→3", "a:transfer says 3→2, its own tables 2→3"),
        ("max_min_d", "1→1", "2→2", "tab:tmn-og says 1→1, every other table 2→2"),
        ("or_xnor_ail_d", "2→4", "2→2", "s:ensembling says the output has m·n_c channels; with 2→1 gates it is m·n_c/2"),
    )
    for spec, paper, right, note in misprints:
        yield Check(spec, paper, measured(spec), expected=right, slip=True, note=note)
