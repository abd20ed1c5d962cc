"""Compare-exchange cells, and the one component that turns a network into them."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters, SorterParameters
from rtl.pipeline import register
from rtl.sorting.entry import group_layout
from rtl.sorting.networks import Stages

__all__ = ["Network", "exchange"]

#: Bits through which the carry of a comparison ripples: the best of area and delay in Nangate45.
_GROUP = 8


def _order_word(winner, loser, width: int, index_tiebreak: bool) -> Value:
    """Bits of ``winner`` as they stand against the same bits of ``loser``.

    A low index ranks high: its bits come from the other side.
    """
    word = Cat(loser.index, winner.key) if index_tiebreak else Value.cast(winner.key)
    return Cat(C(0, width - len(word)), word)


def _outrank(m: Module, cells, index_tiebreak: bool, name: str) -> list[Value]:
    """Of each pair of entries whether the first ranks above the second; either if they are equal.

    The carries out of subtractions, of all pairs side by side: they ripple through groups of bits,
    in all groups at once, and then from group to group. Mapped, this is smaller than what synthesis
    makes of ``>``.
    """

    def vector(suffix, value):
        signal = Signal(len(value), name=f"{name}_{suffix}")
        m.d.comb += signal.eq(value)
        return signal

    a, _ = cells[0]
    groups = -(-(len(a.key) + len(a.index) * index_tiebreak) // _GROUP)
    width = groups * _GROUP
    x = Cat(_order_word(a, b, width, index_tiebreak) for a, b in cells)
    y = Cat(_order_word(b, a, width, index_tiebreak) for a, b in cells)
    g, p = vector("g", x & ~y), vector("p", x | ~y)

    generate, propagate = g[::_GROUP], p[::_GROUP]
    for place in range(1, _GROUP):
        step = vector(f"p{place}", p[place::_GROUP])
        generate = g[place::_GROUP] | (step & generate)
        propagate = step & propagate
    generate, propagate = vector("generate", generate), vector("propagate", propagate)

    outranks = []
    for first in range(0, len(cells) * groups, groups):
        carry = generate[first]
        for group in range(first + 1, first + groups):
            carry = generate[group] | (propagate[group] & carry)
        outranks.append(carry)
    return outranks


def exchange(m: Module, entries, pairs, index_tiebreak: bool, name: str) -> Signal:
    """One stage of compare-exchange cells.

    Parameters
    ----------
    m : Module
        Where the cells are built; a submodule each would become a Verilog module each.
    entries : view of a group
        Before the stage.
    pairs : sequence of (int, int)
        Of each, the higher entry leaves at the first place, the lower at the second.
    index_tiebreak : bool
        Of equal keys the lower index ranks higher; else either does.
    name : str
        Of the returned group.
    """
    exchanged = Signal(entries.shape(), name=name)
    moved = {place for pair in pairs for place in pair}
    ranking = _outrank(m, [(entries[i], entries[j]) for i, j in pairs], index_tiebreak, name)

    m.d.comb += [
        exchanged[place].eq(entries[place]) for place in range(len(entries)) if place not in moved
    ]
    for outranks, (i, j) in zip(ranking, pairs, strict=True):
        a, b = entries[i], entries[j]
        keep = Signal(name=f"{name}_keep_{i}_{j}")
        m.d.comb += [
            keep.eq(outranks),
            exchanged[i].eq(Mux(keep, a, b)),
            exchanged[j].eq(Mux(keep, b, a)),
            # The highest bit needs no comparison, which saves gates.
            exchanged[i].key[-1].eq(a.key[-1] | b.key[-1]),
            exchanged[j].key[-1].eq(a.key[-1] & b.key[-1]),
        ]
    return exchanged


class Network(wiring.Component):
    """Compare-exchange stages over a group of entries, with registers after some of them.

    Parameters
    ----------
    parameters : SorterParameters or RisParameters
        Widths, order, and the stages after which registers stand.
    stages : Stages
    first : int
        Number of the first stage in the whole path.
    places : int
        Entries of the group.

    Attributes
    ----------
    registers : tuple of int
        Numbers of the stages in here after which registers stand.

    Members
    -------
    i, o : group of ``places`` entries
        ``o`` follows ``i`` through ``len(registers)`` register sets.
    load : ``In(len(registers))``
        Register sets that take their input in this clock, those before hold; only with ``stall``
        and registers. Without ``stall`` every set moves in every clock.
    """

    def __init__(
        self,
        parameters: SorterParameters | RisParameters,
        stages: Stages,
        *,
        first: int,
        places: int,
    ):
        self.parameters = parameters
        self.stages = stages
        self.first = first
        numbers = range(first, first + len(stages))
        self.registers = tuple(number for number in parameters.registers if number in numbers)
        layout = group_layout(places, parameters.key_width, parameters.index_width)
        members = {"i": In(layout), "o": Out(layout)}
        if parameters.stall and self.registers:
            members["load"] = In(len(self.registers))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()

        group = self.i
        for number, pairs in enumerate(self.stages, self.first):
            group = exchange(m, group, pairs, self.parameters.index_tiebreak, f"stage_{number}")
            if number in self.registers:
                stall = self.parameters.stall
                load = self.load[self.registers.index(number)] if stall else None
                group = register(m, group, load, f"register_{number}")
        m.d.comb += self.o.eq(group)

        return m
