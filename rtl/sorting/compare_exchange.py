"""Compare-exchange cells, and the one component that turns a network into them."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters, SorterParameters
from rtl.sorting.entry import group_layout
from rtl.sorting.networks import Stages
from rtl.sorting.pipeline import register

__all__ = ["Network", "exchange"]

#: Bits through which the carry of a comparison ripples: the best of area and delay in Nangate45.
_GROUP = 8


def _outranks(m: Module, a, b, index_tiebreak: bool, name: str) -> Value:
    """Whether entry ``a`` ranks above ``b``; either value if they are equal.

    The carry out of a subtraction: it ripples inside groups of bits, all groups at once, and then
    from group to group. Mapped, this is smaller than what synthesis makes of ``>``.
    """
    width = len(a.key) + (len(a.index) if index_tiebreak else 0)
    groups = -(-width // _GROUP)
    x, y = (Signal(groups * _GROUP, name=f"{name}_{operand}") for operand in "xy")
    generate, propagate = (Signal(groups, name=f"{name}_{carry}") for carry in ("g", "p"))

    for operand, entry in ((x, a), (y, b)):
        word = Cat(~entry.index, entry.key) if index_tiebreak else entry.key
        padded = Cat(C(0, len(x) - width), word)
        # Bits of one place in all the groups lie side by side, so that the groups ripple together.
        m.d.comb += operand.eq(Cat(padded[place::_GROUP] for place in range(_GROUP)))

    ripple, skip = C(0, groups), ~C(0, groups)
    for left, right in zip(_words(x, groups), _words(y, groups), strict=True):
        ripple = (left & ~right) | ((left | ~right) & ripple)
        skip = (left | ~right) & skip
    m.d.comb += [generate.eq(ripple), propagate.eq(skip)]

    carry = generate[0]
    for group in range(1, groups):
        carry = generate[group] | (propagate[group] & carry)
    return carry


def _words(value, width: int):
    return (value[start : start + width] for start in range(0, len(value), width))


def exchange(m: Module, entries, pairs, index_tiebreak: bool, name: str) -> Signal:
    """One stage of compare-exchange cells.

    Parameters
    ----------
    m : Module
        Where the cells are built; a submodule each would become a Verilog module each.
    entries : view of a group
    pairs : sequence of (int, int)
        Of each, the higher entry leaves at the first place, the lower at the second.
    name : str
        Of the returned group.
    """
    exchanged = Signal(entries.shape(), name=name)
    moved = {place for pair in pairs for place in pair}
    still = [place for place in range(len(entries)) if place not in moved]

    m.d.comb += [exchanged[place].eq(entries[place]) for place in still]
    for i, j in pairs:
        a, b = entries[i], entries[j]
        keep = Signal(name=f"{name}_keep_{i}_{j}")
        m.d.comb += [
            keep.eq(_outranks(m, a, b, index_tiebreak, f"{name}_{i}_{j}")),
            exchanged[i].eq(Mux(keep, a, b)),
            exchanged[j].eq(Mux(keep, b, a)),
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
