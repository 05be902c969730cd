"""Where the lab keeps what it downloads."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder() -> Path:
    """``BOOLIT_DATA`` if it is set, else ``boolit`` in the platform's cache folder; it need not exist yet.

    Example:
        >>> data_folder().is_absolute()
        True
    """
    chosen = os.environ.get("BOOLIT_DATA")
    return Path(chosen).expanduser().absolute() if chosen else _cache_folder() / "boolit"


def _cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The standard behind the variable wants a relative path ignored.
    return configured if configured.is_absolute() else Path.home() / ".cache"
