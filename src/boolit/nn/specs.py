"""Names of activations ⇄ modules.

    gate       OP_FORM                  or_ail, xnor_nil, implies_il
    ensemble   OP_OP…_FORM_STRATEGY     or_and_xnor_nail_d, or_xnor_ail_p; STRATEGY is d, p or pu (uneven partition)
               SPEC+SPEC…_STRATEGY      max+xnor_ail_d: members of any kind
    baseline   relu, tanh, max, max_min_d, signed_geomean, glu, …
    endings    _kN for groups of N, _halves for GLU's pairing: or_ail_k3, xnor_il_halves, or_xnor_ail_d_k4

The names are safe in a shell, a file name and TOML. `register` adds one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from boolit.logic import FORMS, OPERATIONS
from boolit.logic.vocabulary import as_int
from boolit.nn.gates import GATED, POINTWISE, Activation, Ensemble, Extremum, Gate, Gated, Pointwise, SignedGeomean

_REGISTERED: dict[str, Callable[[int], Activation]] = {}
_ENDINGS = re.compile(r"(?P<body>.+?)(?:_k(?P<k>[0-9]{1,9}))?(?P<halves>_halves)?")
_STRATEGY = re.compile(r"(?P<members>.+)_(?P<strategy>d|p|pu)")
_WORDS = sorted([*OPERATIONS, *FORMS, "max", "min"], key=len, reverse=True)


class _Endings(NamedTuple):
    body: str
    k: int
    pairing: str
    given: bool


def activation(spec: str | type[nn.Module] | Callable[[Tensor], Tensor], dim: int = -1) -> Activation:
    """The module a spec names; or any nn.Module class or callable, which sees the channels last: see `boolit.nn.Custom`.

    Args:
        spec: ``or_ail``, ``or_and_xnor_nail_d``, ``max``, ``relu``, …: ``boolit list`` and `boolit.nn.known_specs` have them
            all, and the page on gates their grammar. An activation is returned as it is. An unknown name is a ValueError
            with the nearest.
        dim: the dimension of the channels: -1 in linear layers, 1 (or -3) in convolutions.

    Shape: of the module, ``(…, C, …)`` to ``(…, C·out/in, …)`` for its map in → out.

    Example:
        >>> gates = activation("or_and_xnor_nail_d", dim=1)
        >>> gates.map, gates(torch.zeros(2, 8, 5, 5)).shape
        ((2, 3), torch.Size([2, 12, 5, 5]))
        >>> activation(torch.nn.Tanh).map
        (1, 1)
    """
    if isinstance(spec, Activation):
        return spec
    dim = as_int("dim", dim)
    if isinstance(spec, str):
        return _parse(spec, dim)
    if isinstance(spec, type):
        if issubclass(spec, nn.Module):
            return Custom(spec(), dim)
    elif callable(spec):
        return Custom(spec, dim)
    raise TypeError(f"an activation is a spec (a string), an nn.Module class or a callable, got {spec!r}")


def register(name: str, factory: Callable[[int], Activation]) -> None:
    """Makes ``name`` a spec: ``factory(dim)`` returns its module, whose channels lie along ``dim``.

    From then on it works wherever a spec does: in `activation`, `MLP`, `convert`, studies and the command line.

    Args:
        name: lower-case letters, digits and _; no name of boolit's own, which is a ValueError.
        factory: called for every module that is made; it returns an `Activation`, as a rule a `Custom`.

    Example:
        >>> register("abs_tanh", lambda dim: Custom(lambda x: x.tanh().abs(), dim, name="abs_tanh"))
        >>> activation("abs_tanh")(torch.tensor([0.0, -100.0]))
        tensor([0., 1.])
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} cannot be a spec: use lower-case letters, digits and _, starting with a letter")
    if _is_built_in(name):
        raise ValueError(f"{name!r} is already an activation of boolit; choose another name")
    _REGISTERED[name] = factory


def _is_built_in(name: str) -> bool:
    try:
        return (_ensemble(name, -1) or _single(name, -1)) is not None
    except ValueError:  # a gate's name with a wrong ending
        return True


def known_specs() -> list[str]:
    """Every spec that takes no ending, the paper's ensembles included: baselines, gates, ensembles, registered ones.

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
    """Any module or callable as an activation.

    It sees the channels along the last dimension, wherever ``dim`` says they are. Its map is found by calling it on a small
    tensor.

    Args:
        function: a module or a function of one tensor, which may change the size of the last dimension only.
        dim: the dimension of the channels.
        name: the spec; the function's own name unless given.

    Shape: ``(…, C, …)`` to ``(…, C·out/in, …)`` along ``dim``, for the map in → out.

    Example:
        >>> pairs = Custom(lambda x: x[..., 0::2] * x[..., 1::2], dim=1)
        >>> pairs.map, pairs(torch.ones(3, 8, 5)).shape
        ((2, 1), torch.Size([3, 4, 5]))
    """

    def __init__(self, function: Callable[[Tensor], Tensor], dim: int = -1, name: str | None = None) -> None:
        super().__init__()
        self.function, self.dim = function, as_int("dim", dim)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._map = _probe(function, self.name)

    @property
    def spec(self) -> str:
        return self.name

    @property
    def map(self) -> tuple[int, int]:
        return self._map

    def forward(self, x: Tensor) -> Tensor:
        if self.dim in (-1, x.dim() - 1):
            return self.function(x)
        return self.function(x.movedim(self.dim, -1)).movedim(-1, self.dim)


def _probe(function: Callable[[Tensor], Tensor], name: str) -> tuple[int, int]:
    """Channels in → out, found on a tensor whose other dimensions must stay as they are."""
    *others, channels = shape = (2, 3, 24)
    try:
        with torch.no_grad():
            result: Any = function(torch.zeros(shape))
        *kept, found = result.shape
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TypeError(f"{name} is no activation: called on zeros of shape {shape} it failed: {reason}") from error
    if kept != others:
        raise TypeError(
            f"{name} is no activation: it turned shape {shape} into {tuple(result.shape)}; "
            "it must change the last dimension only, which is where it sees the channels"
        )
    factor = Fraction(found, channels)
    return factor.denominator, factor.numerator


def _parse(spec: str, dim: int) -> Activation:
    if spec in _REGISTERED:
        made = _REGISTERED[spec](dim)
        if not isinstance(made, Activation):
            raise ValueError(
                f"the factory of {spec!r} made a {type(made).__name__}; have it return Custom(…, dim, name={spec!r})"
            )
        return made
    module = _ensemble(spec, dim) or _single(spec, dim)
    if module is None:
        known = known_specs()
        like = spec.strip().casefold().replace("-", "_").replace(" ", "_")
        near = [like] if like in known else difflib.get_close_matches(like, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`boolit list` shows all"
        raise ValueError(f"unknown activation {spec!r}; {hint}")
    return module


def _single(spec: str, dim: int) -> Activation | None:
    body, k, pairing, given = _endings(spec)
    if not given and body in POINTWISE:
        return Pointwise(body, dim)
    if not given and body in GATED:
        return Gated(body, dim)
    if body in ("max", "min"):
        return Extremum(body, _group_size(k, spec), dim, pairing)
    if body == "signed_geomean" and k == 2:
        return SignedGeomean(dim, pairing)
    op, _, form = body.rpartition("_")
    if op in OPERATIONS and form in FORMS:
        return Gate(op, form, k, dim, pairing)
    return None


def _ensemble(spec: str, dim: int) -> Activation | None:
    body, k, pairing, given = _endings(spec)
    match = _STRATEGY.fullmatch(body)
    if match is None:
        return None
    names, strategy = match["members"], match["strategy"]
    members = _plus_members(names, dim) if "+" in names and not given else _word_members(names, k, pairing, dim, spec)
    if members is None:
        return None
    return Ensemble(members, "d" if strategy == "d" else "p", dim, uneven=strategy == "pu")


def _plus_members(names: str, dim: int) -> list[Activation]:
    return [_parse(name, dim) for name in names.split("+")]


def _word_members(names: str, k: int, pairing: str, dim: int, spec: str) -> list[Activation] | None:
    words = _words(names)
    if words is None:
        return None
    form = words.pop() if words[-1] in FORMS else None
    if not words or any(word in FORMS for word in words):
        return None
    if form is None and any(word in OPERATIONS for word in words):
        return None
    if form is not None and all(word in ("max", "min") for word in words):
        return None
    return [
        Extremum(word, _group_size(k, spec), dim, pairing) if word in ("max", "min") else Gate(word, str(form), k, dim, pairing)
        for word in words
    ]


def _words(names: str) -> list[str] | None:
    """``names`` cut into known words at its underscores, longest first (``implied_by`` holds one itself)."""
    words: list[str] = []
    rest = names
    while rest:
        word = next((w for w in _WORDS if rest == w or rest.startswith(w + "_")), None)
        if word is None or rest == word + "_":
            return None
        words.append(word)
        rest = rest[len(word) + 1 :]
    return words


def _endings(spec: str) -> _Endings:
    match = _ENDINGS.fullmatch(spec)
    if match is None:
        return _Endings(spec, 2, "adjacent", given=False)
    k = int(match["k"]) if match["k"] else 2
    return _Endings(match["body"], k, "halves" if match["halves"] else "adjacent", bool(match["k"] or match["halves"]))


def _group_size(k: int, spec: str) -> int:
    if k < 2:
        raise ValueError(f"k={k} in {spec!r} is not a group size: a gate reads at least 2 channels")
    return k
