"""A folder of images as a table: the features of a frozen encoder, computed once for every image."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from boolit.lab.common.files import atomic_write, cache_key, data_folder
from boolit.lab.datasets.embeddings import encode_photographs, weights_identity
from boolit.lab.datasets.images.folder import files_identity, images_by_class

TARGET = "class"


def image_table(folder: Path, weights: Path | None, shown: bool | None = None) -> Path:
    """Write the features and classes of a folder's images as a Parquet file in the data folder and return its path.

    Args:
        folder: a folder with one folder of images per class.
        weights: weights of a ResNet-18. Defaults to torchvision's.
        shown: False hides the progress.
    """
    classes = images_by_class(folder)
    files = {"images": [path for paths in classes.values() for path in paths]}
    own_weights = None if weights is None else str(weights)
    _, digest = weights_identity(own_weights)
    cache = data_folder() / "embeddings" / cache_key(f"{digest} {files_identity(files)}")
    table = cache / "table.parquet"
    if not table.is_file():
        features = encode_photographs(cache, files, own_weights, digest, shown)
        frame = pd.DataFrame(features.float().numpy(), columns=[f"feature {i}" for i in range(features.shape[1])])
        frame[TARGET] = [name for name, paths in classes.items() for _ in paths]
        with atomic_write(table) as part:
            frame.to_parquet(part)
    return table
