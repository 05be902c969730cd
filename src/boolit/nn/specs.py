"""Names of activations, and the modules they stand for.

    gate       OP_FORM                  or_ail, xnor_nil, implies_il
    ensemble   OP_OP…_FORM_STRATEGY     or_and_xnor_nail_d, or_xnor_ail_p; STRATEGY is d, p, pu or pl
               SPEC+SPEC…_STRATEGY      relu+xnor_ail_d: members of any kind
    baseline   relu, tanh, max, max_min_d, signed_geomean, glu, threshold_0.1_0, …
    endings    _kN for groups of N, _halves for the pairing of GLU: or_ail_k3, xnor_il_halves, or_xnor_ail_d_k4

The names are safe in a shell, a file name and TOML. `register` adds one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from boolit.logic.dispatch import position
from boolit.logic.operations import FORMS, OPERATIONS, as_int, split_members, split_spec
from boolit.nn.gates import GATED, POINTWISE, REDUCTIONS, Activation, Ensemble, Gate, Gated, Pointwise, Reduction, is_pointwise

_REGISTERED: dict[str, Callable[[int | None], Activation]] = {}
_UNLISTED: dict[str, Callable[[int | None], Activation]] = {}  # registered, but not in `known_specs`


def activation(spec: str | type[nn.Module] | Callable[[Tensor], Tensor], dim: int | None = None) -> Activation:
    """Return the module that a spec names.

    Args:
        spec: ``or_ail``, ``or_and_xnor_nail_d``, ``max``, ``relu``, …; ``boolit list`` and `boolit.nn.known_specs` list them.
            An nn.Module class or a callable becomes a `boolit.nn.Custom`. An activation is returned as it is, or as a copy if
            it acts along another ``dim``. An unknown name raises a ValueError that suggests the nearest names.
        dim: Dimension of the channels: 1 (or -3) after a convolution, including Conv1d; -1 after a linear layer or for channels
            last. If it is not given, activations that read several channels use the last dimension of tensors with up to three
            dimensions and refuse larger ones.

    Returns:
        A module that turns ``(…, C, …)`` into ``(…, C·out/in, …)`` for its ``channels`` (in, out).

    Example:
        >>> gates = activation("or_and_xnor_nail_d", dim=1)
        >>> gates.channels, gates(torch.zeros(2, 8, 5, 5)).shape
        ((2, 3), torch.Size([2, 12, 5, 5]))
        >>> activation(torch.nn.Tanh).channels
        (1, 1)
    """
    dim = dim if dim is None else as_int("dim", dim)
    if isinstance(spec, Activation):
        return spec.along(dim)
    if isinstance(spec, str):
        return _parse(spec, dim)
    if isinstance(spec, type) and issubclass(spec, nn.Module):
        return Custom(spec(), dim)
    if callable(spec) and not isinstance(spec, type):
        return Custom(spec, dim)
    raise TypeError(f"an activation is a spec (a string), an nn.Module class or a callable, got {spec!r}")


def register(name: str, factory: Callable[[Any], Activation], listed: bool = True) -> None:
    """Make ``name`` a spec, usable in `activation`, `MLP`, `convert`, studies and the command line.

    Args:
        name: Lower-case letters, digits and _. A spec that boolit already has raises a ValueError.
        factory: Called as ``factory(dim)`` for every module that is made. It returns an `Activation`, usually a `Custom`.
        listed: Whether `known_specs` and ``boolit list`` show it.

    Example:
        >>> register("abs_tanh", lambda dim: Custom(lambda x: x.tanh().abs(), dim, name="abs_tanh"))
        >>> activation("abs_tanh")(torch.tensor([0.0, -100.0]))
        tensor([0., 1.])
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} cannot be a spec: use lower-case letters, digits and _, starting with a letter")
    try:
        taken = _built_in(name, None) is not None
    except ValueError:  # a gate's name with a wrong ending
        taken = True
    if taken:
        raise ValueError(f"{name!r} is already an activation of boolit; choose another name")
    (_REGISTERED if listed else _UNLISTED)[name] = factory


def known_specs() -> list[str]:
    """Return every spec without endings: baselines, gates, the paper's ensembles and registered ones.

    Example:
        >>> {"relu", "max_min_d", "or_ail", "or_and_xnor_nail_d"} <= set(known_specs())
        True
    """
    gates = [f"{op}_{form}" for form in FORMS for op in OPERATIONS]
    ensembles = [
        f"{names}_{form}_{strategy}"
        for form in FORMS
        for names, strategies in (("or_and", "d"), ("or_xnor", "pd"), ("or_and_xnor", "pd"))
        for strategy in strategies
    ]
    return [*POINTWISE, *GATED, "max", "min", "max_min_d", "signed_geomean", *gates, *ensembles, *_REGISTERED]


class Custom(Activation):
    """Any module or function as an activation.

    The function always gets the channels in the last dimension, whatever ``dim`` is. How many channels it reads and returns is
    found by calling it, in evaluation mode, on a small tensor.

    Args:
        function: A module or a function of one tensor, which may change the size of the last dimension only.
        dim: Dimension of the channels; see `Activation`.
        name: The spec. Defaults to the function's name.

    Shape: ``(…, C, …)`` to ``(…, C·out/in, …)`` along ``dim``, for ``channels`` (in, out).

    Example:
        >>> pairs = Custom(lambda x: x[..., 0::2] * x[..., 1::2], dim=1)
        >>> pairs.channels, pairs(torch.ones(3, 8, 5)).shape
        ((2, 1), torch.Size([3, 4, 5]))
    """

    def __init__(self, function: Callable[[Tensor], Tensor], dim: int | None = None, name: str | None = None) -> None:
        name = name or str(getattr(function, "__name__", type(function).__name__))
        super().__init__(name, _probe(function, name), dim)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        if self.dim is None and self.channels != (1, 1):
            position(None, x.shape)  # raises an error if there are more than three dimensions
        if self.dim is None or self.dim in (-1, x.dim() - 1):
            return self.function(x)
        return self.function(x.movedim(self.dim, -1)).movedim(-1, self.dim)


def _probe(function: Callable[[Tensor], Tensor], name: str) -> tuple[int, int]:
    """Return the channels in → out, found on a tensor whose other dimensions must stay as they are."""
    *others, channels = shape = (2, 3, 24)
    try:
        probed = deepcopy(function).eval() if isinstance(function, nn.Module) else function
        with torch.no_grad():
            result: Any = probed(torch.zeros(shape))
        *kept, outputs = result.shape
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TypeError(f"{name} is not an activation: called on zeros of shape {shape} it failed: {reason}") from error
    if kept != others:
        raise TypeError(
            f"{name} is not an activation: it turned shape {shape} into {tuple(result.shape)}; "
            "it must change the last dimension only, which is where it sees the channels"
        )
    factor = Fraction(outputs, channels)
    return factor.denominator, factor.numerator


def _parse(spec: str, dim: int | None) -> Activation:
    if factory := _REGISTERED.get(spec) or _UNLISTED.get(spec):
        made = factory(dim)
        if not isinstance(made, Activation):
            kind = type(made).__name__
            raise ValueError(f"the factory of {spec!r} made a {kind}; have it return Custom(…, dim, name={spec!r})")
        return made
    module = _built_in(spec, dim)
    if module is None:
        known = known_specs()
        like = spec.strip().casefold().replace("-", "_").replace(" ", "_")
        near = [like] if like in known else difflib.get_close_matches(like, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`boolit list` shows all"
        raise ValueError(f"unknown activation {spec!r}; {hint}")
    return module


def _built_in(spec: str, dim: int | None) -> Activation | None:
    if is_pointwise(spec):
        return Pointwise(spec, dim)
    if spec in GATED:
        return Gated(spec, dim)
    parts = split_spec(spec)
    if "+" in parts.body and parts.strategy is not None and not parts.has_ending:
        return Ensemble([_parse(member, dim) for member in parts.body.split("+")], parts.strategy, dim)
    if parts.body in REDUCTIONS and parts.strategy is None:
        return Reduction(parts.body, parts.k, dim, parts.pairing)
    members = [
        Gate(name, form, parts.k, dim, parts.pairing) if form else Reduction(name, parts.k, dim, parts.pairing)
        for name, form in split_members(parts.body)
    ]
    if parts.strategy is not None and members:
        return Ensemble(members, parts.strategy, dim)
    return members[0] if len(members) == 1 else None
