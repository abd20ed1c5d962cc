"""Vectors for the selection, kept and broken announcements, and what must come out."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.parameters import SelectionParameters
from golden.selection import Response, respond
from rtl.sorting.entry import Mode

__all__ = ["FAULTS", "Vector", "faulty", "random_vectors"]

#: How a vector and its command can disagree.
FAULTS = ("short", "long", "too long for Q", "length 0", "length", "b_ii", "mode")


@dataclasses.dataclass
class Vector:
    """One command and the values that follow it, shape (beats, ways)."""

    bits: NDArray[Any]
    length: int
    b_ii: int
    mode: Mode
    parameters: SelectionParameters

    @classmethod
    def of(
        cls,
        values: NDArray[Any],
        b_ii: int,
        mode: Mode = Mode.CHUNK_SORT,
        *,
        parameters: SelectionParameters,
        rng: np.random.Generator | None = None,
    ) -> "Vector":
        """Vector as announced, with anything in the lanes beyond its chunks."""
        p, rng = parameters, rng or np.random.default_rng(0)
        beats = []
        for start in range(0, len(values), p.head_dim):
            chunk = values[start : start + p.head_dim]
            lanes = -(-len(chunk) // p.ways) * p.ways
            padded = rng.integers(1 << p.key_width, size=lanes).astype(values.dtype)
            padded[: len(chunk)] = chunk
            beats.append(padded.reshape(-1, p.ways))
        return cls(np.concatenate(beats), len(values), b_ii, mode, p)

    def responses(self) -> list[Response]:
        """Beats of ``o``."""
        return respond(
            self.bits,
            self.b_ii,
            length=self.length,
            head_dim=self.parameters.head_dim,
            ways=self.parameters.ways,
            max_length=self.parameters.max_length,
            mode=self.mode.value,
        )


def random_vectors(
    p: SelectionParameters,
    rng: np.random.Generator,
    count: int,
    *,
    levels: int | None = None,
    lengths: list[int] | None = None,
) -> list[Vector]:
    """Vectors of both modes with any B_II.

    Parameters
    ----------
    p : SelectionParameters
        Of the block.
    rng : numpy.random.Generator
        Decides everything.
    count : int
        Vectors to draw.
    levels : int, optional
        Different values of a vector; unset: any.
    lengths : list of int, optional
        Lengths to choose from; unset: any.
    """
    vectors = []
    for _ in range(count):
        mode = Mode.GLOBAL_SORT if rng.integers(2) else Mode.CHUNK_SORT
        limit = p.head_dim if mode == Mode.GLOBAL_SORT else p.max_length
        length = int(rng.integers(1, limit + 1))
        if lengths is not None:
            length = int(rng.choice([n for n in lengths if n <= limit]))
        bits = rng.integers(1 << p.key_width, size=length)
        if levels is not None:
            bits = rng.choice(bits[:levels], size=length)
        bits = bits.astype(np.uint16 if p.key_width == 16 else np.uint32)
        b_ii = int(rng.integers(p.head_dim + 1))
        vectors.append(Vector.of(bits, b_ii, mode, parameters=p, rng=rng))
    return vectors


def possible_faults(p: SelectionParameters) -> list[str]:
    """Faults that the fields of a command can express, and a vector of several chunks show."""
    fits = {
        "b_ii": p.head_dim + 1 < 1 << p.head_dim.bit_length(),
        "length": p.max_length + 1 < 1 << p.max_length.bit_length(),
        "too long for Q": p.head_dim < p.max_length,
    }
    return [fault for fault in FAULTS if fits.get(fault, True)]


def faulty(p: SelectionParameters, rng: np.random.Generator, fault: str) -> Vector:
    """Vector that does not keep what its command says."""
    length = int(rng.integers(p.ways + 1, p.max_length + 1))
    values = rng.integers(1 << p.key_width, size=length)
    values = values.astype(np.uint16 if p.key_width == 16 else np.uint32)
    b_ii = int(rng.integers(p.head_dim + 1))
    vector = Vector.of(values, b_ii, parameters=p, rng=rng)
    if fault == "short":
        vector.bits = vector.bits[: rng.integers(1, len(vector.bits))]
    elif fault == "long":
        extra = rng.integers(1 << p.key_width, size=(rng.integers(1, 9), p.ways))
        vector.bits = np.concatenate([vector.bits, extra.astype(values.dtype)])
    else:
        wrong: dict[str, dict[str, Any]] = {
            "too long for Q": {"length": p.head_dim + 1, "mode": Mode.GLOBAL_SORT},
            "length 0": {"length": 0},
            "length": {"length": p.max_length + 1},
            "b_ii": {"b_ii": p.head_dim + 1},
            "mode": {"mode": Mode.HEAPIFY_UP},
        }
        vector = dataclasses.replace(vector, **wrong[fault])
    return vector
