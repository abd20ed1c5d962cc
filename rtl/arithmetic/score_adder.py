"""Adder of an attention weight to an importance score."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import TisgParameters
from rtl.arithmetic import fixed_sum, float_sum
from rtl.arithmetic.float_sum import FP16, FP32
from rtl.arithmetic.widen import widen
from rtl.pipeline import register

__all__ = ["ScoreAdder"]


class ScoreAdder(wiring.Component):
    """One lane of the score generator: ``IS <- round(IS + P)``.

    Rounds to nearest even; subnormals are kept; fp16 and fp32 overflow to infinity, ufix saturates
    one code below all ones. A ``p`` of -0 counts as +0; one that is NaN or negative adds nothing.
    Where nothing is added, or ``enable`` is low, ``sum`` is ``score``, bit by bit.

    ``score`` must be neither negative nor NaN, in ufix not above the code that it saturates at,
    while ``enable`` is high; then ``sum`` is not either. There is no subtraction in here.

    Combinational, or with one register set inside if ``adder_registers`` is 1.

    Parameters
    ----------
    parameters : TisgParameters
        ``score_format``, ``int_bits``, ``frac_bits``, ``adder_registers`` and ``stall`` are used.

    Members
    -------
    score : ``In(score_width)``
        fp16, fp32, or a code in the lowest ``int_bits + frac_bits`` of 32 bits; higher bits pass.
    p : ``In(16)``
        fp16.
    enable : ``In(1)``
        Whether to add.
    load : ``In(1)``
        The register set takes its input in this clock; only if there is one and ``stall``.
    sum : ``Out(score_width)``
        In the format of ``score``.
    bad : ``Out(1)``
        ``p`` is NaN or negative non-zero, and ``enable`` is high.
    """

    meanings = {
        "score": "importance score, non-negative and no NaN",
        "p": "attention weight, fp16",
        "enable": "whether to add; if low, sum is score",
        "load": "register set inside takes its input at this clock edge",
        "sum": "score + p",
        "bad": "p is NaN or negative non-zero: nothing was added",
    }

    def __init__(self, parameters: TisgParameters):
        self.parameters = parameters
        members = {
            "score": In(parameters.score_width),
            "p": In(16),
            "enable": In(1),
            "sum": Out(parameters.score_width),
            "bad": Out(1),
        }
        if parameters.adder_registers and parameters.stall:
            members["load"] = In(1)
        super().__init__(members)

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from the inputs to the outputs."""
        return {"score to sum": self.parameters.adder_registers}

    def elaborate(self, platform):
        m = Module()
        p = Signal(FP16)
        has_mantissa = Signal()
        nan = Signal()
        negative = Signal()
        added = Signal()
        bad = Signal()

        m.d.comb += [
            p.eq(self.p),
            has_mantissa.eq(p.mantissa.any()),
            nan.eq(p.exponent.all() & has_mantissa),
            negative.eq(p.sign & (p.exponent.any() | has_mantissa)),
            added.eq(self.enable & ~p.sign & ~nan),
            bad.eq(self.enable & (nan | negative)),
        ]

        operands = self._align(m, p, added)
        if self.parameters.adder_registers:
            load = self.load if self.parameters.stall else None
            operands = register(m, operands, load, "operands_1")
            bad = register(m, bad, load, "bad_1")
        m.d.comb += [
            self.sum.eq(self._add(m, operands)),
            self.bad.eq(bad),
        ]

        return m

    def _align(self, m, p, added):
        if self.parameters.score_format == "ufix":
            widths = {
                "int_bits": self.parameters.int_bits,
                "frac_bits": self.parameters.frac_bits,
            }
            return fixed_sum.align(m, self.score, p, added, **widths)
        if self.parameters.score_format == "fp32":
            return float_sum.align(m, FP32(self.score), widen(m, p), added)
        return float_sum.align(m, FP16(self.score), p, added)

    def _add(self, m, operands):
        if self.parameters.score_format == "ufix":
            return fixed_sum.add(m, operands)
        return float_sum.add(m, operands, FP32 if self.parameters.score_format == "fp32" else FP16)
