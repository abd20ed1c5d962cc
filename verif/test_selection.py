# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.sorting.selection.Selection`, in the Amaranth simulator."""

import dataclasses

import numpy as np
import pytest

from golden.parameters import SelectionParameters
from golden.selection import respond
from rtl.sorting.entry import Mode
from rtl.sorting.selection import Selection
from verif import sim

SMALL = SelectionParameters(
    head_dim=16, ways=4, max_length=64, vectors_in_flight=3, tag_width=4, index_lanes=3
)


@dataclasses.dataclass
class Vector:
    """One command and the values that follow it, shape (beats, ways)."""

    bits: np.ndarray
    length: int
    b_ii: int
    mode: Mode = Mode.CHUNK_SORT

    @classmethod
    def of(cls, values, b_ii, mode=Mode.CHUNK_SORT, *, parameters=SMALL, rng=None):
        """Vector that keeps its announcement, with anything in the lanes beyond its chunks."""
        p = parameters
        rng = rng or np.random.default_rng(0)
        beats = []
        for start in range(0, len(values), p.head_dim):
            chunk = values[start : start + p.head_dim]
            padded = rng.integers(1 << p.key_width, size=p.groups * p.ways).astype(values.dtype)
            padded[: len(chunk)] = chunk
            beats.append(padded.reshape(-1, p.ways)[: -(-len(chunk) // p.ways)])
        return cls(np.concatenate(beats), len(values), b_ii, mode)

    def expected(self, p):
        """Beats of ``o``, as `simulate` returns them."""
        responses = respond(
            self.bits,
            self.b_ii,
            length=self.length,
            head_dim=p.head_dim,
            ways=p.ways,
            max_length=p.max_length,
            magnitude=self.mode == Mode.GLOBAL_SORT,
        )
        return [
            (r.chunk, r.last, np.flatnonzero(r.mask).tolist(), r.count, r.error) for r in responses
        ]


def simulate(p, vectors, *, stalls=(0, 0, 0, 0), seed=0, index=True, bench=None, timeout=20_000):
    """Beats of ``o`` and selections of ``o_index`` for vectors back to back; final status."""
    dut = Selection(p)
    count = sum(len(vector.expected(p)) for vector in vectors)
    selections, listed, status = [], [], []
    gaps = [sim.gaps((seed, n), longest) for n, longest in enumerate(stalls)]
    tags = 1 << p.tag_width

    async def command(ctx):
        payloads = (
            {"mode": v.mode, "length": v.length, "b_ii": v.b_ii, "tag": n % tags}
            for n, v in enumerate(vectors)
        )
        await sim.drive(ctx, dut.i_command, payloads, gaps[0])

    async def values(ctx):
        payloads = (
            {"values": beat.tolist(), "last": n == len(vector.bits) - 1}
            for vector in vectors
            for n, beat in enumerate(vector.bits)
        )
        await sim.drive(ctx, dut.i, payloads, gaps[1])

    async def masks(ctx):
        for beat in await sim.collect(ctx, dut.o, count, gaps[2]):
            chosen = [place for place in range(p.head_dim) if beat.mask >> place & 1]
            selections.append(
                (beat.tag, beat.chunk, bool(beat["last"]), chosen, beat["count"], bool(beat.error))
            )
        status.append({name: ctx.get(dut.status[name]) for name in
                       ("nan", "short", "long", "bad_command")})

    async def indices(ctx):
        ctx.set(dut.index_enable, index)
        while index and len(listed) < count:
            found = []
            while True:
                (beat,) = await sim.collect(ctx, dut.o_index, 1, gaps[3])
                found += [int(i) for i in beat.indices][: beat["count"]]
                if beat.end:
                    break
                assert beat["count"] == p.index_lanes
            listed.append((beat.tag, beat.chunk, bool(beat["last"]), found))

    benches = [command, values, masks] + ([indices] if p.index_lanes else [])
    sim.run(dut, *benches, *([bench(dut)] if bench else []), timeout=timeout)
    return selections, listed, status[0]


def check(p, vectors, **options):
    """Compare all that comes out with the golden model."""
    selections, listed, status = simulate(p, vectors, **options)
    tags = 1 << p.tag_width
    wanted = [(n % tags, *beat) for n, v in enumerate(vectors) for beat in v.expected(p)]
    assert selections == wanted
    if p.index_lanes and options.get("index", True):
        assert listed == [beat[:4] for beat in wanted]
    return status


def fp16(values):
    return np.asarray(values, np.float16).view(np.uint16)


def random_vectors(p, rng, count, *, levels=None, lengths=None):
    """Vectors of both modes with any B_II; ``levels``: of few different values."""
    vectors = []
    for _ in range(count):
        mode = Mode.GLOBAL_SORT if rng.integers(2) else Mode.CHUNK_SORT
        limit = p.head_dim if mode == Mode.GLOBAL_SORT else p.max_length
        length = int(rng.integers(1, limit + 1)) if lengths is None else int(rng.choice(lengths))
        if levels:
            pool = rng.integers(1 << p.key_width, size=levels)
            bits = rng.choice(pool, size=length)
        else:
            bits = rng.integers(1 << p.key_width, size=length)
        bits = bits.astype(np.uint16 if p.key_width == 16 else np.uint32)
        b_ii = int(rng.integers(p.head_dim + 1))
        vectors.append(Vector.of(bits, b_ii, mode, parameters=p, rng=rng))
    return vectors


@pytest.mark.parametrize("stalls", [(0, 0, 0, 0), (3, 0, 9, 2), (0, 3, 0, 9), (9, 1, 30, 0)])
def test_matches_golden(stalls):
    rng = np.random.default_rng(1)
    check(SMALL, random_vectors(SMALL, rng, 24), stalls=stalls)
