"""Groups of entries that reach the corners of sorters."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import sort_keys
from golden.parameters import RisParameters, SorterParameters
from golden.sorter import sort_entries

__all__ = ["groups", "ordered", "payloads", "unranked"]

# NaN of both signs with and without payload bits, infinities, zeros, subnormals, ordinary numbers.
_SPECIAL = np.array(
    [0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0x0000, 0x8000, 0x0001, 0x8001, 0x03FF]
    + [0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF],
    np.uint16,
)


def groups(
    rng: np.random.Generator, count: int, parameters: SorterParameters | RisParameters
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and indices, shape (count, ways), of one kind after the other.

    Uniform keys, all equal, two- and three-valued ones, reserved codes, keys of special fp16
    numbers, ascending and descending ones; indices anywhere, few, or each once.
    """
    shape = (count, parameters.ways)
    dtype = np.uint16 if parameters.key_width == 16 else np.uint32
    top = (1 << parameters.key_width) - 1
    uniform = rng.integers(top + 1, size=shape, dtype=np.uint64)
    levels = rng.integers(top + 1, size=(count, 3), dtype=np.uint64)
    reserved = np.array([0, 1, 2, top - 1, top], np.uint64)
    kinds = [
        uniform,
        np.repeat(levels[:, :1], parameters.ways, axis=1),
        np.take_along_axis(levels, rng.integers(2, size=shape), 1),
        np.take_along_axis(levels, rng.integers(3, size=shape), 1),
        rng.choice(reserved, shape),
        sort_keys(rng.choice(_SPECIAL, shape)).astype(np.uint64),
        np.sort(uniform, axis=1),
        np.sort(uniform, axis=1)[:, ::-1],
    ]
    keys = np.choose(np.arange(count)[:, None] % len(kinds), kinds).astype(dtype)

    limit = 1 << parameters.index_width
    each_once = rng.permuted(np.tile(np.arange(parameters.ways), (count, 1)), axis=1) % limit
    index_kinds = [
        rng.integers(limit, size=shape),
        rng.integers(min(limit, 3), size=shape),
        each_once,
    ]
    return keys, np.choose(rng.integers(3, size=(count, 1)), index_kinds)


def payloads(keys: NDArray[Any], indices: NDArray[Any]) -> list[list[dict[str, int]]]:
    """Turn groups into what the Amaranth simulator takes."""
    return [
        [{"key": int(k), "index": int(i)} for k, i in zip(*group, strict=True)]
        for group in zip(keys, indices, strict=True)
    ]


def unranked(groups: list) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and indices of groups as the Amaranth simulator gives them."""
    keys = np.array([[entry.key for entry in group] for group in groups], np.uint32)
    indices = np.array([[entry.index for entry in group] for group in groups])
    return keys, indices


def ordered(keys: NDArray[Any], indices: NDArray[Any]) -> list[list[tuple[int, int]]]:
    """List the entries (key, index) of each group in descending order: ``==`` compares sets."""
    lists = (side.tolist() for side in sort_entries(keys, indices))
    return [list(zip(*group, strict=True)) for group in zip(*lists, strict=True)]
