"""Values networks begin with that the data knows: word vectors, the list of what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from boolit.lab.errors import UserError
from boolit.lab.models import Stacked


def give(model: Stacked, given: Mapping[str, Tensor]) -> None:
    """Copies values into every run's parameter or buffer of their name.

    Shape: each as in the network's state, without the axis of runs.
    """
    state = model.state_dict()
    for name, values in given.items():
        if name not in state:
            rule = f"a network that has {', '.join(sorted(state))}"
            raise UserError(f"the data gives networks values for {name!r}, not known to {rule}; choose a model for this data")
        own = state[name]
        if own.shape[1:] != values.shape:
            shapes = f"{tuple(values.shape)}, but the model's is {tuple(own.shape[1:])}"
            raise UserError(f"the data's {name!r} has the shape {shapes}; change the model's options to the data's sizes")
        with torch.no_grad():
            own.copy_(values.expand_as(own))
