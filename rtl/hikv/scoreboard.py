"""Scoreboard (HiKV, IV-A) with a sorter of its own."""

from amaranth import *
from amaranth.lib import wiring

from golden.parameters import ScoreboardParameters
from rtl.hikv.scoreboard_core import ScoreboardCore
from rtl.hikv.scoreboard_ports import MEANINGS, latency, members
from rtl.sorting.ris import Ris

__all__ = ["Scoreboard"]


class Scoreboard(wiring.Component):
    """:class:`rtl.hikv.scoreboard_core.ScoreboardCore` and the sorter that its heap needs.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    All of the core but ``o_ris_sort``, ``o_ris_pick`` and ``i_ris_pick``.
    """

    meanings = {name: text for name, text in MEANINGS.items() if "ris" not in name}

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = parameters
        found = members(parameters)
        super().__init__({name: found[name] for name in self.meanings})

    @property
    def latency(self) -> dict[str, int]:
        """Clocks when nothing stalls."""
        return latency(self.parameters)

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = ScoreboardCore(self.parameters)
        m.submodules.ris = ris = Ris(core.ris)
        wiring.connect(m, core.o_ris_sort, ris.i_sort)
        wiring.connect(m, core.o_ris_pick, ris.i_pick)
        wiring.connect(m, ris.o_pick, core.i_ris_pick)
        # Nothing is sent to the sorter that would leave there.
        m.d.comb += ris.o_sort.ready.eq(1)

        ports: dict = self.signature.members
        for name, member in ports.items():
            outer, inner = getattr(self, name), getattr(core, name)
            if member.is_signature:
                wiring.connect(m, wiring.flipped(outer), inner)
            elif member.flow == wiring.In:
                m.d.comb += inner.eq(outer)
            else:
                m.d.comb += outer.eq(inner)

        return m
