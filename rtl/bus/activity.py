"""Clock enable of a block that may sleep."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["Activity"]


class Activity(wiring.Component):
    """Enables a block's clock from the clock after it has work until it has had none for a while.

    ``enable`` comes from a register, so that a gating cell sees it early in the clock; only
    ``test_enable`` acts at once. Transfers to and from the block take place in enabled clocks only:
    whatever ``work`` leaves out is then late, never lost or doubled.

    Parameters
    ----------
    idle_clocks : int
        Clocks without work before ``enable`` falls, at least 2.

    Members
    -------
    work : ``In(1)``
        A transfer is offered, or the block is busy.
    test_enable : ``In(1)``
        Enables all clocks, for scan.
    enable : ``Out(1)``
    """

    work: In(1)
    test_enable: In(1)
    enable: Out(1)

    def __init__(self, idle_clocks: int):
        if idle_clocks < 2:
            raise ValueError(f"Idle clocks must be at least 2, not {idle_clocks!r}")
        self.idle_clocks = idle_clocks
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        left = Signal(ceil_log2(self.idle_clocks + 1), init=self.idle_clocks)

        m.d.comb += self.enable.eq(left.any() | self.test_enable)

        with m.If(self.work):
            m.d.sync += left.eq(self.idle_clocks)
        with m.Elif(left.any()):
            m.d.sync += left.eq(left - 1)

        return m
