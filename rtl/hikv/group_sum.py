"""Values of the query heads of one group, added where they share one selection."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters, TisgParameters
from rtl.arithmetic.score_adder import ScoreAdder
from rtl.memory import Memory, MemoryShape
from rtl.pipeline import advance, delay, register
from rtl.sorting.sort_key import is_nan

__all__ = ["GroupSum", "beat_layout", "sum_rows"]


def sum_rows(p: HikvSelectorParameters) -> int:
    """Rows of ``ways`` sums: those of Q after those of P."""
    return -(-p.max_slots // p.ways) + p.head_dim // p.ways


def beat_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """``ways`` values on their way to the sorter.

    ``magnitude``: Q, whose signs do not count. ``present``: lanes before the end of the vector.
    ``weighs``: lanes that are not zero in every head added so far. ``adds``, ``opens``, ``row``:
    the values are added to that row of sums, which starts at +0 if it ``opens``. ``keeps``: they
    are to be sorted. ``last``, ``ranks``, ``error``: the vector ends, is selected from, is faulty.
    """
    return data.StructLayout({
        "values": data.ArrayLayout(unsigned(16), p.ways),
        "weighs": p.ways,
        "present": p.ways,
        "row": range(sum_rows(p)),
        "magnitude": 1,
        "adds": 1,
        "opens": 1,
        "keeps": 1,
        "last": 1,
        "ranks": 1,
        "error": 1,
    })


class GroupSum(wiring.Component):
    """Replaces values by their sums over the heads so far, ``fp16``, as the score generator adds.

    Values that are not added pass as they are. A vector must not enter before ``idle``.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i, o : stream of :func:`beat_layout`
        ``weighs`` of ``i`` is ignored.
    idle : ``Out(1)``
        Nothing is under way.
    nan : ``Out(1)``
        A NaN passes.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = parameters
        beat = stream.Signature(beat_layout(parameters))
        super().__init__({"i": In(beat), "o": Out(beat), "idle": Out(1), "nan": Out(1)})

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from stream to stream when nothing stalls."""
        return {"i to o": 2 + self.parameters.adder_registers}

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        beat = beat_layout(p)
        sets = range(1, 1 + self.latency["i to o"])
        valid, ready, loads = advance(m, sets, self.i.valid, self.o.ready)
        held = register(m, self.i.payload, loads[0], "beat_1")
        occupied = Signal(range(len(sets) + 1))
        entered = Signal(beat)
        nans = [is_nan(value) for value in held.values]

        m.d.comb += [
            self.i.ready.eq(ready),
            self.o.valid.eq(valid),
            self.idle.eq(occupied == 0),
            entered.eq(held),
            self.nan.eq(loads[1] & (Cat(nans) & held.present).any()),
        ]
        m.d.sync += occupied.eq(occupied + loads[0] - (valid & self.o.ready))

        sums = self._sums(m, held, entered, loads)
        passed = data.View(beat, delay(m, entered.as_value(), loads[1:-1], "beat_2"))
        result = Signal(beat)
        m.d.comb += [result.eq(passed), result.values.eq(Cat(sums))]
        m.d.comb += self.o.payload.eq(register(m, result, loads[-1], "result"))

        return m

    def _sums(self, m, held, entered, loads):
        """Lanes of the last register set; what weighs is noted in ``entered``."""
        p = self.parameters
        m.d.comb += entered.weighs.eq(Cat(value[:-1].any() for value in held.values))
        if p.queries == 1:
            # A sum of one value is that value, unless it may not be added.
            bad = [is_nan(value) | (value[-1] & ~held.magnitude) for value in held.values]
            alone = [
                Mux(held.adds & wrong, 0, value)
                for wrong, value in zip(bad, held.values, strict=True)
            ]
            return [delay(m, value, loads[1:-1], f"sum_{n}") for n, value in enumerate(alone)]

        row = self._rows(m, loads)
        parameters = TisgParameters(lanes=1, adder_registers=p.adder_registers)
        sums = []
        for lane, value in enumerate(held.values):
            before = Signal(row[lane].shape(), name=f"before_{lane}")
            m.submodules[f"adder_{lane}"] = adder = ScoreAdder(parameters)
            m.d.comb += [
                before.eq(Mux(held.opens, 0, row[lane].as_value())),
                entered.weighs[lane].eq(value[:-1].any() | (held.adds & before.weighs)),
                adder.score.eq(Mux(held.adds, before.sum, value)),
                adder.p.eq(Cat(value[:-1], value[-1] & ~held.magnitude)),
                adder.enable.eq(held.adds),
            ]
            if p.adder_registers:
                m.d.comb += adder.load.eq(loads[1])
            sums.append(adder.sum)
        return sums

    def _rows(self, m, loads):
        """Row of sums that belongs to the first register set; the last one is written back."""
        p = self.parameters
        entry = data.StructLayout({"sum": 16, "weighs": 1})
        row = data.ArrayLayout(entry, p.ways)
        m.submodules.rows = rows = Memory(MemoryShape(sum_rows(p), Shape.cast(row).width))
        beat = self.o.payload
        m.d.comb += [
            rows.read_en.eq(loads[0] & self.i.payload.adds),
            rows.read_addr.eq(self.i.payload.row),
            rows.write_en.eq(self.o.valid & self.o.ready & beat.adds),
            rows.write_addr.eq(beat.row),
            rows.write_data.eq(
                Cat(Cat(v, w) for v, w in zip(beat.values, beat.weighs, strict=True))
            ),
        ]
        return data.View(row, rows.read_data)
