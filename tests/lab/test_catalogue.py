"""Every activation is in the catalogue, described, and what it says of itself is true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import boolit
from boolit.lab.catalogue import FORMS, list_activations
from boolit.nn import Custom, Ensemble, Gate, known_specs, register, specs

BUILT_IN = [spec for spec in known_specs() if spec not in specs._REGISTERED]


@pytest.fixture
def registered() -> Iterator[str]:
    register("triple", lambda dim: Custom(lambda x: torch.cat([x, x, x], -1), dim, name="triple"))
    yield "triple"
    del specs._REGISTERED["triple"]


def test_every_built_in_activation_has_a_short_description_of_its_own() -> None:
    entries = {entry.spec: entry for entry in list_activations()}
    descriptions = [entries[spec].description for spec in BUILT_IN]
    assert all(0 < len(description) <= 38 for description in descriptions)
    assert len({(entries[spec].description, entries[spec].kind, entries[spec].map) for spec in BUILT_IN}) == len(BUILT_IN)


def test_it_has_every_activation_as_its_module_says_it_is() -> None:
    entries = {entry.spec: entry for entry in list_activations()}
    assert set(entries) == set(known_specs())
    for spec, entry in entries.items():
        module = boolit.activation(spec)
        assert (module.spec, module.map, module.divisor) == (spec, entry.map, entry.divisor)
        assert module.feature_factor == entry.feature_factor
        assert module(torch.zeros(2, 12)).shape[-1] == 12 * entry.feature_factor


def test_kinds_and_descriptions_are_those_of_the_modules() -> None:
    for entry in list_activations():
        module = boolit.activation(entry.spec)
        program = getattr(module, "program", None)
        if isinstance(module, Gate):
            assert entry.kind == "gate"
            assert entry.description.endswith(f", {FORMS[module.form]}")
        elif isinstance(module, Ensemble) and program is not None:
            assert entry.kind == {"d": "duplicate", "p": "partition"}[module.strategy]
            assert entry.description == f"{', '.join(op.upper() for op, _ in program.members)}; {FORMS[program.members[0][1]]}"
        else:
            assert entry.kind == ("registered" if type(module) is Custom else "baseline")


def test_is_sorted_by_map_with_each_kind_together() -> None:
    keys = [(entry.map, entry.kind) for entry in list_activations()]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    assert len(set(keys)) == sum(1 for i, key in enumerate(keys) if i == 0 or key != keys[i - 1])


def test_a_registered_activation_is_listed(registered: str) -> None:
    entry = next(entry for entry in list_activations() if entry.spec == registered)
    assert (entry.arrow, entry.kind) == ("1→3", "registered")
    assert entry.description
