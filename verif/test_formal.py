# amaranth: UnusedElaboratable=no
"""The prover itself: it must find what is wrong, and when."""

import pytest
from amaranth.hdl import Assert, Assume, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from verif.formal import Refuted, prove


class Counter(wiring.Component):
    """Counts 0 to ``last`` in 4 bits; asserts that it never gets to ``limit``."""

    up: In(1)

    def __init__(self, last, limit, *, starts_anew=True):
        super().__init__()
        self.last, self.limit, self.starts_anew = last, limit, starts_anew

    def elaborate(self, platform):
        m = Module()
        count = Signal(4)
        with m.If(self.up):
            m.d.sync += count.eq(count + 1)
            with m.If((count == self.last) & self.starts_anew):
                m.d.sync += count.eq(0)
        m.d.comb += Assert(count != self.limit, "limit")
        return m


def test_invariant_that_is_inductive_is_proven():
    prove(Counter(4, 5), depth=1, induction=True)


def test_bounded_proof_ends_where_the_failure_begins():
    prove(Counter(4, 5, starts_anew=False), depth=5)
    with pytest.raises(Refuted, match=r"^An assertion can fail in clock 5 after power-up$"):
        prove(Counter(4, 5, starts_anew=False), depth=6)


def test_true_invariant_that_is_not_inductive_is_refused():
    message = r"^An assertion can fail in a clock after 1 without a failure$"
    with pytest.raises(Refuted, match=message):
        prove(Counter(4, 9), depth=1, induction=True)


class Sum(wiring.Component):
    """Asserts that a sum of two inputs is even where both are assumed so."""

    a: In(4)
    b: In(4)

    def elaborate(self, platform):
        m = Module()
        total = self.a + self.b
        m.d.comb += [Assume(~self.a[0] & ~self.b[0], "even"), Assert(~total[0], "even")]
        return m


def test_assumptions_restrict_the_inputs():
    prove(Sum(), depth=1)
