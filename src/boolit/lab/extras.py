"""Which packages each optional feature needs, by the names they are installed under."""

from __future__ import annotations

import sys

EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": (
        "kornia",
        "matplotlib",
        "numpy",
        "pillow",
        "pooch",
        "pyarrow",
        "pydantic",
        "rich",
        "safetensors",
        "scipy",
        *(() if sys.version_info >= (3, 11) else ("tomli",)),
        "typer",
    ),
    "sklearn": ("scikit-learn",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
