"""How a record's parts lie in the store."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Metrics as JSON that any reader accepts: what is not finite is a string, for JSON has no number for it.

    Example:
        >>> metrics_text({"loss": float("nan"), "accuracy": 0.5})
        '{"accuracy":0.5,"loss":"nan"}'
    """
    plain = {name: float(value) if math.isfinite(value) else str(float(value)) for name, value in metrics.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def metrics_from(text: str) -> dict[str, float]:
    """The metrics of a text by `metrics_text`, bit by bit."""
    return {name: float(value) for name, value in json.loads(text).items()}


def epochs_blob(values: Sequence[float]) -> bytes:
    """A curve as compressed little-endian doubles: a third of JSON's size, and exact."""
    return zlib.compress(struct.pack(f"<{len(values)}d", *values))


def epochs_from(blob: bytes) -> list[float]:
    """The curve of a blob by `epochs_blob`, bit by bit.

    Example:
        >>> epochs_from(epochs_blob([0.1, float("inf")]))
        [0.1, inf]
    """
    raw = zlib.decompress(blob)
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def mapping_text(mapping: Mapping[str, Any]) -> str:
    """An environment as JSON with sorted keys, so that equal ones are kept once."""
    return json.dumps(mapping, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
