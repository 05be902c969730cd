"""A ResNet-18 trained on ImageNet, without its last layer: the encoder of the transfer experiments (s:transfer)."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import regular_file
from boolit.lab.datasets.download.fetch import fetch_missing
from boolit.lab.datasets.download.published import Provenance, verify_file
from boolit.lab.models.resnet18 import Resnet18

NAME = "weights"
BACKBONE = "resnet18-backbone.pth"  # a file of one's own, beside the published one
LARGEST = 2**29  # bytes of a file


class Weights(Provenance, published="weights"):
    """torchvision's file.

    NOTE[paper]: a:transfer says ResNet50, the tables' parameter counts and the text ResNet-18.
    """


def resnet18_path(path: Path | None = None) -> Path:
    """The file to be used: the one given, else the published one, else ``resnet18-backbone.pth`` beside it; where there is
    none, the published one is fetched.
    """
    if path is not None:
        return path
    (published,) = Weights.files
    own = own_resnet18()
    if own is not None:
        return own
    fetch_missing(Weights.files)
    verify_file(published, published.path)
    return published.path


def resnet18_here() -> bool:
    """Whether one of the files is here."""
    (published,) = Weights.files
    return published.kept is not None or own_resnet18() is not None


def own_resnet18() -> Path | None:
    """The user's own file where it is used: if it is here and the published one is not."""
    (published,) = Weights.files
    own = published.path.with_name(BACKBONE)
    return own if published.kept is None and own.is_file() else None


def resnet18_weights(path: Path | None = None) -> dict[str, Tensor]:
    """The weights of the layers before the last one, by torchvision's names, as float32; `resnet18_path` says of which file.

    Shape: ``conv1.weight`` is ``(64, 3, 7, 7)``; what follows the last block has 512 channels.
    """
    file = resnet18_path(path)
    found, wanted = _read(file), resnet18_shapes()
    for name, shape in wanted.items():
        given = tuple(found[name].shape) if isinstance(found.get(name), Tensor) else None
        if given != shape:
            raise UserError(f"{file} holds no ResNet-18: {name} has the shape {given}, not {shape}; give torchvision's file")
    return {name: found[name].float() for name in wanted}


def resnet18_shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the network without its last layer.

    Example:
        >>> len(resnet18_shapes()), resnet18_shapes()["layer4.1.conv2.weight"]
        (100, (512, 512, 3, 3))
    """
    with torch.device("meta"):
        state = Resnet18().state_dict()
    return {name: tuple(values.shape) for name, values in state.items() if not name.endswith("num_batches_tracked")}


def _read(file: Path) -> dict[str, Any]:
    if regular_file(file, "give a file of tensors by name").is_file() and file.stat().st_size > LARGEST:
        raise UserError(f"{file} has more than {LARGEST:,} bytes, and a ResNet-18 has 50 million; give torchvision's file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how a file was pickled; either it is read, or what is wrong is said below
            found = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"there is no weights file {file}; check the path") from None
    except pickle.UnpicklingError:  # torch's own text recommends to read the file without the safeguard
        raise UserError(f"{file} holds more than weights, and is not read: it could run code; give a file of tensors") from None
    except Exception as error:  # a damaged file may fail with any exception
        raise UserError(f"{file} is no whole weights file ({type(error).__name__}); give another, or fetch it again") from None
    if not isinstance(found, dict):
        raise UserError(f"{file} holds a {type(found).__name__}, not weights by name; give a file of tensors by name")
    return found
