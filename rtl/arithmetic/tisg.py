"""Token importance score generator."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import TisgParameters
from rtl.arithmetic.score_adder import ScoreAdder
from rtl.pipeline import advance, register

__all__ = ["Tisg"]


class Tisg(wiring.Component):
    """Token importance score generator (HiKV, IV-A): a row of ``lanes`` score adders.

    Each transfer on ``i`` gives one on ``o``, in order: of every enabled lane the score plus its
    attention weight, rounded as :class:`rtl.arithmetic.score_adder.ScoreAdder` does; of every other
    lane the score, bit by bit. One beat per clock. Latency is ``1 + adder_registers`` clocks; with
    ``stall`` each register set waits until there is room behind it, and payload registers load
    only when a beat moves into them.

    Parameters
    ----------
    parameters : TisgParameters

    Members
    -------
    i : ``In(stream.Signature(StructLayout))``
        ``scores``: ``lanes`` scores; ``p``: ``lanes`` fp16 weights; ``enable``: one bit per lane.
        Always ready unless ``stall``.
    o : ``Out(stream.Signature(StructLayout))``
        ``scores``: ``lanes`` scores; ``bad``: one bit per lane, set where an enabled lane's weight
        was NaN or negative non-zero and so was not added. Always ready unless ``stall``.
    clear : ``In(1)``
        Clears ``bad``. A bad weight in the beat that reaches ``o`` at the same clock edge wins.
    bad : ``Out(1)``
        Sticky: ``o`` has offered a beat with a bit of its ``bad`` set. Rises together with
        ``o.valid`` of that beat.
    """

    meanings = {
        "i": "scores, weights to add, and which lanes to add in",
        "o": "updated scores, and the lanes with a bad weight",
        "clear": "clears the sticky flag; a new bad weight wins",
        "bad": "sticky: a weight was NaN or negative non-zero",
    }

    def __init__(self, parameters: TisgParameters):
        self.parameters = parameters
        lanes = parameters.lanes
        scores = data.ArrayLayout(parameters.score_width, lanes)
        self.i_layout = data.StructLayout({
            "scores": scores,
            "p": data.ArrayLayout(16, lanes),
            "enable": lanes,
        })
        self.o_layout = data.StructLayout({"scores": scores, "bad": lanes})
        always_ready = not parameters.stall
        super().__init__({
            "i": In(stream.Signature(self.i_layout, always_ready=always_ready)),
            "o": Out(stream.Signature(self.o_layout, always_ready=always_ready)),
            "clear": In(1),
            "bad": Out(1),
        })

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from stream to stream when nothing stalls."""
        return {"i to o": 1 + self.parameters.adder_registers}

    def elaborate(self, platform):
        m = Module()
        result = Signal(self.o_layout)

        sets = range(1, self.latency["i to o"] + 1)
        valid, ready, loads = advance(m, sets, self.i.valid, self.o.ready)
        for lane in range(self.parameters.lanes):
            m.submodules[f"adder_{lane}"] = adder = ScoreAdder(self.parameters)
            m.d.comb += [
                adder.score.eq(self.i.payload.scores[lane]),
                adder.p.eq(self.i.payload.p[lane]),
                adder.enable.eq(self.i.payload.enable[lane]),
                result.scores[lane].eq(adder.sum),
                result.bad[lane].eq(adder.bad),
            ]
            if self.parameters.stall and self.parameters.adder_registers:
                m.d.comb += adder.load.eq(loads[0])

        stall = self.parameters.stall
        held = register(m, result, loads[-1] if stall else None, "result")
        m.d.comb += [
            self.o.valid.eq(valid),
            self.o.payload.eq(held),
        ]
        if stall:
            m.d.comb += self.i.ready.eq(ready)

        with m.If(self.clear):
            m.d.sync += self.bad.eq(0)
        with m.If(loads[-1] & result.bad.any()):
            m.d.sync += self.bad.eq(1)

        return m
