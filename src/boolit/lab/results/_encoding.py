"""How a record's parts lie in the store."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONGEST_CURVE = 2**23  # epochs; a blob that holds more is no curve of ours
DIGEST_BYTES = 16


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
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(blob, 8 * LONGEST_CURVE)
    except zlib.error as error:
        raise ValueError(f"a curve cannot be unpacked ({error})") from error
    if not unpacking.eof or unpacking.unused_data or len(raw) % 8:
        raise ValueError(f"a curve is cut short, longer than {LONGEST_CURVE} epochs, or followed by something else")
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def mapping_text(mapping: Mapping[str, Any]) -> str:
    """An environment as JSON with sorted keys, so that equal ones are kept once."""
    return json.dumps(mapping, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(parts: Iterable[str | bytes | float]) -> bytes:
    """The checksum of some values as SQLite gives them: other values, lengths or types have another one.

    Example:
        >>> digest(["ab", "c"]) == digest(["a", "bc"]), digest(["1"]) == digest([b"1"])
        (False, False)
    """
    pieces: list[bytes] = []
    for part in parts:
        if isinstance(part, str):
            kind, raw = b"s", part.encode("utf-8", "surrogatepass")
        elif isinstance(part, bytes):
            kind, raw = b"b", part
        elif isinstance(part, float):
            kind, raw = b"d", struct.pack("<d", part)
        else:
            raise TypeError(f"no record holds {part!r}")
        pieces += (kind, len(raw).to_bytes(8, "little"), raw)
    return hashlib.blake2b(b"".join(pieces), digest_size=DIGEST_BYTES).digest()
