"""A generated compositional dataset: features of objects with attributes, some pairs of which occur in tests only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Dataset, Source
from boolit.lab.datasets.czsl import Pairs, compositional_dataset

# The proportions of MIT-States: of 1,962 pairs 1,262 are seen; the other splits have 300 and 400 unseen pairs and as many seen
# ones. The splits have 30,338, 10,420 and 12,995 images.
UNSEEN = {"valid": 300 / 1962, "test": 400 / 1962}
SAMPLES = {"valid": 10_420 / 30_338, "test": 12_995 / 30_338}
LATENT = 6  # numbers in the code of each attribute and object
HIDDEN = 48
GAIN = 3.0  # the higher, the less additive in attribute and object
OBJECT = 0.5  # weight of the contribution of the object alone


class Composed(Source):
    """Features and word vectors that are functions of latent codes of attributes and objects.

    The features of an image are a linear map of the object's code, plus a fixed random network of both codes, plus ``noise``;
    word vectors are linear in the codes, plus noise (``vagueness``). ``listed`` is the share of all pairs that occurs; the
    splits have MIT-States' proportions, with ``samples`` to train on.
    """

    name: Literal["composed"] = "composed"
    attributes: int = Field(12, ge=3, le=1000)
    objects: int = Field(16, ge=3, le=1000)
    listed: float = Field(0.6, gt=0, le=1)
    samples: int = Field(3000, ge=100)
    features: int = Field(64, ge=2, le=2**20)
    words: int = Field(16, ge=LATENT, le=2**16)
    noise: float = Field(1.5, ge=0)
    vagueness: float = Field(0.3, ge=0)
    negatives: int = Field(32, ge=1, le=10**6)
    seed: int = 0

    @model_validator(mode="after")
    def _enough_pairs(self) -> Composed:
        least, listed = 2 * max(self.attributes, self.objects), f"listed = {self.listed} of {self.attributes} × {self.objects}"
        if self._pair_count < least:  # every attribute and object is trained
            raise ValueError(f"{listed} pairs are {self._pair_count}; raise it, as {least} are the fewest to learn all words")
        return self

    @property
    def _pair_count(self) -> int:
        return round(self.listed * (self.attributes * self.objects))

    def load(self) -> Dataset:
        pairs = self.pairs()
        targets = {split: self._targets(pairs, split) for split in ("train", *UNSEEN)}
        attributes = self._normal("attributes", self.attributes, LATENT)
        objects = self._normal("objects", self.objects, LATENT)
        of_pairs = self._images(attributes[pairs.numbers[:, 0]], objects[pairs.numbers[:, 1]])
        labels = torch.cat(list(targets.values()))
        table = of_pairs[labels] + self.noise * self._normal("noise", len(labels), self.features)
        words = (self._words("attribute words", attributes), self._words("object words", objects))
        return compositional_dataset(pairs, targets, table, words, self.negatives)

    def pairs(self) -> Pairs:
        """Draw pairs in random order: first one for every attribute and object, which is seen, then others."""
        every = [(a, o) for a in range(self.attributes) for o in range(self.objects)]
        order = torch.randperm(len(every), generator=generator(self.seed, "composed", "pairs")).tolist()
        diagonal = [(i % self.attributes, i % self.objects) for i in range(max(self.attributes, self.objects))]
        others = [every[place] for place in order if every[place] not in diagonal]
        listed = (diagonal + others)[: self._pair_count]
        return Pairs.from_names(_split([(f"attribute {a:03d}", f"object {o:03d}") for a, o in listed]))

    def _targets(self, pairs: Pairs, split: str) -> Tensor:
        """Draw the pairs of a split's images, equally frequent and in random order."""
        count = round(self.samples * SAMPLES.get(split, 1.0))
        numbers = pairs.masks[split].nonzero().squeeze(1)
        rng = generator(self.seed, "composed", "images", split)
        order = torch.randperm(len(numbers), generator=rng)
        repeated = numbers[order].repeat(-(-count // len(numbers)))[:count]
        return repeated[torch.randperm(count, generator=rng)]

    def _images(self, attributes: Tensor, objects: Tensor) -> Tensor:
        """Return features without noise. Shape: ``(pairs, latent)`` twice, to ``(pairs, features)``."""
        hidden = torch.cat([attributes, objects], 1) @ self._normal("first", 2 * LATENT, HIDDEN)
        joint = (GAIN * hidden * LATENT**-0.5).tanh() @ self._normal("second", HIDDEN, self.features) * HIDDEN**-0.5
        features: Tensor = joint + OBJECT * objects @ self._normal("own", LATENT, self.features) * LATENT**-0.5
        return features

    def _words(self, purpose: str, codes: Tensor) -> Tensor:
        exact: Tensor = codes @ self._normal(purpose, LATENT, self.words) * LATENT**-0.5
        return exact + self.vagueness * self._normal(f"{purpose}, vague", *exact.shape)

    def _normal(self, purpose: str, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator(self.seed, "composed", purpose))


def _split(listed: list[tuple[str, str]]) -> Mapping[str, list[tuple[str, str]]]:
    """Make the last pairs the unseen ones; each split also has as many seen pairs."""
    numbers = {split: max(1, round(share * len(listed))) for split, share in UNSEEN.items()}
    first_unseen = after_seen = len(listed) - sum(numbers.values())
    splits = {"train": listed[:first_unseen]}
    for split, count in numbers.items():
        splits[split] = listed[after_seen - count : after_seen] + listed[first_unseen : first_unseen + count]
        first_unseen, after_seen = first_unseen + count, after_seen - count
    return splits
