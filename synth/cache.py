"""Figures kept by the hash of all that they depend on."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["key", "load", "save"]

# Read once: a source that changes during a run is not the one that runs.
_SOURCES = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


def key(*inputs: str) -> str:
    """Hash of inputs and of this package's sources, so that a changed flow finds nothing."""
    total = hashlib.sha256(_SOURCES)
    for part in inputs:
        total.update(hashlib.sha256(part.encode()).digest())
    return total.hexdigest()


def load(store: Path, key: str) -> dict[str, Any] | None:
    """Look up what is kept under a key; None if nothing is, or it says that it has other inputs."""
    try:
        result = json.loads((store / f"{key}.json").read_text())
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and result.get("inputs") == key else None


def save(store: Path, key: str, result: dict[str, Any]) -> None:
    """Keep a result, whole or not at all."""
    store.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=store, suffix=".part")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(result, file, indent=2)
        os.replace(name, store / f"{key}.json")
    except BaseException:
        os.unlink(name)
        raise
