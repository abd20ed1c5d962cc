"""Attention traces of a model's decoding: format, validation, the embedded one."""

import dataclasses
import json
import math
import os
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["EMBEDDED", "VERSION", "Trace", "TraceError"]

VERSION = 1
#: The trace that comes with the project.
EMBEDDED = Path(__file__).resolve().parent.parent / "data" / "trace_small.npz"

Bits = NDArray[np.uint16]
Integers = NDArray[np.int32]


class TraceError(ValueError):
    """A trace that is not as the format says."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Q, K, V and P of a prompt and the decode steps after it, as a full cache sees them.

    All values are fp16 bit patterns. Axes ``layer`` and ``head`` count the captured layers and KV
    heads, whose numbers in the model are ``layers`` and ``kv_heads``; ``query`` counts the query
    heads of a KV head. Step s decodes the token at position ``prompt + s``, which attends to
    itself and all before it.

    The attention weights of the prompt itself are not kept: for a prefill of n tokens they are as
    large as n decode steps. What prefill initialisation takes from them is kept: the importance
    scores at the end of the prompt, for each recent-bank capacity in ``windows``.

    Parameters
    ----------
    layers, kv_heads : ndarray of int32, ascending
        Numbers in the model.
    tokens : ndarray of int32, shape (prompt + steps,)
        Token ids.
    q : ndarray of uint16, shape (layer, head, query, steps, head_dim)
        Queries of the decode steps, after rotary embedding, unscaled.
    k, v : ndarray of uint16, shape (layer, head, prompt + steps, head_dim)
        Keys (after rotary embedding) and values of all tokens.
    p : ndarray of uint16, shape (layer, head, query, steps, prompt + steps)
        Attention weights of the decode steps: :func:`golden.attention.softmax` of
        :func:`golden.attention.scores` of ``q`` and ``k``, bit by bit; +0 beyond the step's own
        token.
    windows : ndarray of int32, ascending, from 1 to prompt
        Recent-bank capacities that ``scores`` has.
    scores : ndarray of uint16, shape (layer, head, windows, prompt)
        Importance score of each prompt token: its attention column over ``window`` rows from its
        own on (fewer if the prompt ends first), added in fp16, rows ascending, inside a row the
        queries ascending.
    about : dict of str to str, int or float
        Where the trace comes from: model, text, command.

    Raises
    ------
    TraceError
        If shapes, types or contents do not fit; the message names the array.
    """

    layers: Integers
    kv_heads: Integers
    tokens: Integers
    q: Bits
    k: Bits
    v: Bits
    p: Bits
    windows: Integers
    scores: Bits
    about: dict[str, Any]

    def __post_init__(self):
        _check_types(self)
        _check_shapes(self)
        _check_contents(self)

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q.shape[2]

    @property
    def steps(self) -> int:
        """Decode steps."""
        return self.q.shape[3]

    @property
    def head_dim(self) -> int:
        """Elements of one Q, K or V."""
        return self.q.shape[4]

    @property
    def prompt(self) -> int:
        """Prompt tokens."""
        return self.scores.shape[3]

    def length(self, step: int) -> int:
        """Tokens that step attends to."""
        return self.prompt + step + 1

    def initial_scores(self, window: int) -> Bits:
        """Scores of the prompt tokens for one recent-bank capacity.

        Parameters
        ----------
        window : int
            At least 1; a capacity above the prompt is the same as the whole prompt.

        Returns
        -------
        ndarray of uint16, shape (layer, head, prompt)

        Raises
        ------
        ValueError
            If the trace does not hold that capacity.
        """
        found = np.flatnonzero(self.windows == min(window, self.prompt))
        if not len(found):
            raise ValueError(
                f"Window must be one that the trace holds ({_listing(self.windows)}), "
                f"not {window!r}; capture it with --windows"
            )
        return self.scores[:, :, found[0]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz``; an existing file is replaced only by a complete one."""
        path = Path(path)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        # Scores grow with the window, by few bits: the growth packs to a fraction of the scores.
        arrays["scores"] = np.diff(self.scores, axis=2, prepend=np.uint16(0))
        about = np.array(json.dumps(self.about, sort_keys=True))
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, version=np.int32(VERSION), about=about, **arrays)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str] = EMBEDDED) -> Self:
        """Read a trace; without a path, the one that comes with the project.

        Raises
        ------
        TraceError
            If the file is no trace of this version, or damaged.
        OSError
            If the file cannot be read.
        """
        arrays = _read(Path(path))
        for name in ("version", "about", *_ARRAYS):
            if name not in arrays:
                raise TraceError(f"{path} is no trace: it lacks the array {name!r}")
        version, about = arrays.pop("version"), arrays.pop("about")
        try:
            if version.shape or version.dtype.kind != "i" or version != VERSION:
                raise TraceError(f"version must be {VERSION}, not {version.tolist()!r}")
            if about.shape or about.dtype.kind != "U":
                raise TraceError(f"about must be one text, not {about.dtype} {about.shape}")
            if unknown := sorted(set(arrays) - set(_ARRAYS)):
                raise TraceError(f"arrays must be {', '.join(_ARRAYS)}, not {unknown[0]!r}")
            if arrays["scores"].dtype == np.uint16 and arrays["scores"].ndim == 4:
                arrays["scores"] = np.cumsum(arrays["scores"], axis=2, dtype=np.uint16)
            return cls(**arrays, about=_parse_about(str(about)))
        except TraceError as error:
            raise TraceError(f"{path} is no trace that can be used: {error}") from None


_ARRAYS = ("layers", "kv_heads", "tokens", "q", "k", "v", "p", "windows", "scores")
_DIMENSIONS = dict(zip(_ARRAYS, (1, 1, 1, 5, 4, 4, 5, 1, 4), strict=True))
_INTEGERS = ("layers", "kv_heads", "tokens", "windows")


_ZIP = (zipfile.BadZipFile, zlib.error)


def _listing(numbers: NDArray[Any]) -> str:
    """``1 to 256`` or ``1, 2, 4``."""
    first, last = int(numbers[0]), int(numbers[-1])
    dense = last - first + 1 == len(numbers) > 2
    return f"{first} to {last}" if dense else ", ".join(str(number) for number in numbers)


def _check_types(trace: Trace) -> None:
    for name, dimensions in _DIMENSIONS.items():
        array = getattr(trace, name)
        dtype = np.int32 if name in _INTEGERS else np.uint16
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            kind = getattr(array, "dtype", type(array).__name__)
            raise TraceError(f"{name} must be an array of {np.dtype(dtype)}, not {kind}")
        if array.ndim != dimensions or 0 in array.shape:
            raise TraceError(
                f"{name} must have {dimensions} dimensions, none empty, not shape {array.shape}"
            )
    for key, value in trace.about.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise TraceError(f"about[{key!r}] must be a text or a number, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise TraceError(f"about[{key!r}] must be finite, not {value!r}")


def _check_shapes(trace: Trace) -> None:
    layers, kv_heads = len(trace.layers), len(trace.kv_heads)
    _, _, group, steps, head_dim = trace.q.shape
    tokens, prompt = len(trace.tokens), trace.scores.shape[3]
    if prompt + steps != tokens:
        raise TraceError(
            f"tokens must be the prompt's {prompt} (scores) and the {steps} steps' (q), "
            f"not {tokens}"
        )
    expected = {
        "q": (layers, kv_heads, group, steps, head_dim),
        "k": (layers, kv_heads, tokens, head_dim),
        "v": (layers, kv_heads, tokens, head_dim),
        "p": (layers, kv_heads, group, steps, tokens),
        "scores": (layers, kv_heads, len(trace.windows), prompt),
    }
    for name, shape in expected.items():
        if getattr(trace, name).shape != shape:
            raise TraceError(f"{name} must have shape {shape}, not {getattr(trace, name).shape}")


def _check_contents(trace: Trace) -> None:
    if trace.tokens.min() < 0:
        raise TraceError(f"tokens must not be negative, not {trace.tokens.min()}")
    limits = {"layers": (0, None), "kv_heads": (0, None), "windows": (1, trace.prompt)}
    for name, (low, high) in limits.items():
        numbers = getattr(trace, name)
        inside = numbers[0] >= low and (high is None or numbers[-1] <= high)
        if not inside or (np.diff(numbers) <= 0).any():
            span = f"from {low}" if high is None else f"from {low} to {high}"
            raise TraceError(f"{name} must ascend, {span}, not {numbers.tolist()}")
    later = np.arange(len(trace.tokens)) > trace.prompt + np.arange(trace.steps)[:, np.newaxis]
    if trace.p[:, :, :, later].any():
        raise TraceError("p must be +0 beyond the step's own token")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                # NumPy would take it for a pickle, and advise to load it unsafely.
                raise ValueError("not an .npz archive")
            file.seek(0)
            archive = np.load(file, allow_pickle=False)
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, KeyError, NotImplementedError, struct.error, *_ZIP) as error:
        raise TraceError(
            f"{path} is no trace, or is damaged ({error}); capture one with `kvsmith trace`"
        ) from error


def _parse_about(text: str) -> dict[str, Any]:
    try:
        about = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"about must be a JSON object ({error})") from None
    if not isinstance(about, dict):
        raise TraceError(f"about must be a JSON object, not {text[:40]!r}")
    return about
