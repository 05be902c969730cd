"""Are the pre-activations a gate reads together independent of each other? (a:correlations)

All features of a layer see the same inputs, so two of them are alike as far as their rows of the weight matrix are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import boolit
from boolit.lab.errors import UserError
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

PROBES = 32


@dataclass(frozen=True)
class Correlations:
    """Cosine similarities of weight rows of one activation's runs of one size, in one layer.

    ``paired`` are of rows that one gate reads; where every gate reads one, of neighbouring rows (0, 1), (2, 3), … as if they
    were a pair. ``others`` are of all other pairs of rows.
    """

    activation: str
    layer: int
    width: int
    runs: int
    paired: Tensor
    others: Tensor

    def figures(self) -> dict[str, float]:
        """What there is to say in numbers."""
        return {
            "paired_mean": float(self.paired.mean()),
            "paired_sd": float(self.paired.std()),
            "paired_negative": float((self.paired < 0).float().mean()),
            "others_mean": float(self.others.mean()),
            "others_sd": float(self.others.std()),
        }


def correlations(store: Store, layer: int = 1) -> list[Correlations]:
    """The correlations of every activation whose weights a store has kept, at its largest size, all seeds together."""
    kept = [r for r in store.records() if r.state == "finished" and _config(r)["model"]["name"] == "mlp"]
    kept = [record for record in kept if store.weights(record.key).exists()]
    if not kept:
        raise UserError(f"{store.folder} keeps no weights of a multi-layer perceptron; run a study with keep_weights = true")
    found = [_of_activation(spec, kept, store, layer) for spec in dict.fromkeys(str(r.config["activation"]) for r in kept)]
    if not any(found):
        depth = max(len(_config(record)["width"]) for record in kept)
        raise UserError(f"layer is {layer}; the networks of {store.folder} have {depth} hidden layers")
    return [each for each in found if each]


def _of_activation(spec: str, kept: Sequence[Record], store: Store, layer: int) -> Correlations | None:
    own = [r for r in kept if r.config["activation"] == spec and layer in range(1, len(_config(r)["width"]) + 1)]
    if not own:
        return None
    width = max(_config(record)["width"][layer - 1] for record in own)
    widest = [record for record in own if _config(record)["width"][layer - 1] == width]
    weights = torch.stack([load_file(store.weights(r.key))[f"linear.{layer - 1}.weight"] for r in widest])
    return Correlations(spec, layer, width, len(widest), *row_similarities(weights, together(spec, width)))


def row_similarities(weights: Tensor, paired: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine similarities of rows that are read together, and of those that are not.

    Shape: ``(…, rows, columns)`` and ``(rows, rows)``; all pairs of all matrices in one row each.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]])
        >>> row_similarities(rows, torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool())
        (tensor([-1.]), tensor([0., 0.]))
    """
    unit = torch.nn.functional.normalize(weights.double(), dim=-1)
    similar = (unit @ unit.mT).float()
    each_once = torch.ones_like(paired).triu(1)
    return similar[..., paired & each_once].flatten(), similar[..., ~paired & each_once].flatten()


def together(spec: str, channels: int) -> Tensor:
    """Which channels an activation reads together, found by changing one at a time; neighbours if it reads one at a time.

    Shape: ``(channels, channels)``, without the diagonal.

    Example:
        >>> together("or_ail", 4).nonzero().tolist()
        [[0, 1], [1, 0], [2, 3], [3, 2]]
        >>> together("glu", 4).nonzero().tolist()
        [[0, 2], [1, 3], [2, 0], [3, 1]]
    """
    module = boolit.activation(spec)
    if module.map[0] == 1:
        evenly = channels - channels % 2
        return torch.nn.functional.pad(together("max", evenly), (0, channels - evenly) * 2)
    x = torch.randn(PROBES, 1, channels, generator=torch.Generator().manual_seed(0))
    changed = x + torch.diag(torch.full((channels,), 10.0))
    with torch.no_grad():
        depends = ((module(changed) - module(x)).abs() > 0).any(0).float()
    shared: Tensor = (depends @ depends.mT) > 0
    return shared & ~torch.eye(channels, dtype=torch.bool)


def _config(record: Record) -> Mapping[str, Any]:
    return record.config
