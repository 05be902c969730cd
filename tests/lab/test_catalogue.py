"""Every activation is in the catalogue, described, and what it says of itself is true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import boolit
from boolit.cli._list import activation_entries
from boolit.nn import Custom, known_specs, register, specs

BUILT_IN = [spec for spec in known_specs() if spec not in specs._REGISTERED]


@pytest.fixture
def registered() -> Iterator[str]:
    register("triple", lambda dim: Custom(lambda x: torch.cat([x, x, x], -1), dim, name="triple"))
    yield "triple"
    del specs._REGISTERED["triple"]


def test_every_built_in_activation_has_a_short_description_of_its_own() -> None:
    entries = {entry.spec: entry for entry in activation_entries()}
    descriptions = [entries[spec].description for spec in BUILT_IN]
    assert all(0 < len(description) <= 38 for description in descriptions)
    assert len({(entries[spec].description, entries[spec].kind, entries[spec].map) for spec in BUILT_IN}) == len(BUILT_IN)


def test_maps_are_what_happens_to_channels() -> None:
    for entry in activation_entries():
        out = boolit.activation(entry.spec)(torch.zeros(2, 12)).shape[-1]
        assert out == 12 * entry.feature_factor == 12 * entry.map[1] / entry.map[0]


def test_is_sorted_by_map_with_each_kind_together() -> None:
    keys = [(entry.map, entry.kind) for entry in activation_entries()]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    assert len(set(keys)) == sum(1 for i, key in enumerate(keys) if i == 0 or key != keys[i - 1])


def test_a_registered_activation_is_listed(registered: str) -> None:
    entry = next(entry for entry in activation_entries() if entry.spec == registered)
    assert (entry.arrow, entry.kind) == ("1→3", "registered")
    assert entry.description
