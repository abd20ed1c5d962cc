"""One insertion and one construction step of three nodes, as pure functions with assertions."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import entry_of, group_of, outranks
from rtl.sorting import networks
from rtl.sorting.compare_exchange import exchange
from rtl.sorting.entry import entry_layout, group_layout

__all__ = ["ConstructionStep", "Insertion"]


def _network(m, stages, group, name):
    """Group behind a network of compare-exchange cells."""
    for number, pairs in enumerate(stages):
        group = exchange(m, group, pairs, True, f"{name}_{number}")
    return group


def _same(a, b):
    return Value.cast(a) == Value.cast(b)


def _is_picked(group):
    """First is lowest, last is highest."""
    inner = range(1, len(group))
    return Cat(
        *(~outranks(group[0], group[n]) for n in inner),
        *(~outranks(group[n], group[-1]) for n in range(len(group) - 1)),
    ).all()


def _is_ordered(parent, child):
    return ~outranks(parent[-1], child[0])


def _count(groups, entry):
    """Places that hold an entry."""
    return sum((_same(group[n], entry) for group in groups for n in range(len(group))), C(0, 1))


class Insertion(wiring.Component):
    """Asserts that replacing the minimum keeps three nodes a heap, and every entry once.

    The decision is that of :class:`rtl.hikv.heap_path.HeapPath`, the picker that of the sorter.

    Parameters
    ----------
    parameters : ScoreboardParameters
    correct : bool
        False: the newcomer always stays in the root, which must be refuted.

    Members
    -------
    nodes, newcomer, any_entry : ``In``
        Any values.
    """

    def __init__(self, parameters: ScoreboardParameters, *, correct: bool = True):
        self.parameters = p = parameters
        self.correct = correct
        super().__init__({
            "nodes": In(data.ArrayLayout(group_of(p), 3)),
            "newcomer": In(entry_of(p)),
            "any_entry": In(entry_of(p)),
        })

    def elaborate(self, platform):
        m = Module()
        ways = self.parameters.ways
        root, left, right = (self.nodes[n] for n in range(3))
        side = outranks(left[0], right[0])
        lower = Mux(side, right[0], left[0])
        descends = C(int(self.correct)) & Mux(side, outranks(self.newcomer, right[0]),
                                              outranks(self.newcomer, left[0]))
        gains = [Mux(descends, lower, self.newcomer), self.newcomer, self.newcomer]
        touched = [C(1), descends & ~side, descends & side]
        after = []
        for n in range(3):
            before = Signal(group_of(self.parameters), name=f"before_{n}")
            m.d.comb += [before.eq(self.nodes[n]), before[0].eq(gains[n])]
            picked = _network(m, networks.picker(ways), before, f"picker_{n}")
            result = Signal.like(before, name=f"after_{n}")
            m.d.comb += result.eq(Mux(touched[n], picked, self.nodes[n]))
            after.append(result)

        m.d.comb += [
            Assume(_is_ordered(root, left) & _is_ordered(root, right), "heap"),
            Assume(outranks(self.newcomer, root[0]), "newcomer above minimum"),
            *(Assume(_is_picked(self.nodes[n]), "picked") for n in range(3)),
            *(Assert(_is_picked(node), "picked") for node in after),
            Assert(_is_ordered(after[0], after[1]) & _is_ordered(after[0], after[2]), "heap"),
            Assert(_count(after, self.any_entry) + _same(root[0], self.any_entry)
                   == _count([root, left, right], self.any_entry)
                   + _same(self.newcomer, self.any_entry), "every entry once"),
        ]
        return m


class ConstructionStep(wiring.Component):
    """Asserts that merging a node with its parent orders them, and keeps every entry once.

    And that the builder stops only where a merge would change nothing.

    Parameters
    ----------
    ways : int
        Entries of a node.
    network : str
        Of the sorter.
    key_width, index_width : int
        Bits; a network treats wide entries as it treats narrow ones.

    Members
    -------
    node, parent, any_entry : ``In``
        Any values.
    """

    def __init__(self, *, ways: int, network: str, key_width: int, index_width: int):
        self.ways, self.network = ways, network
        self.entry = entry_layout(key_width, index_width)
        self.group = group_layout(ways, key_width, index_width)
        super().__init__({
            "node": In(self.group),
            "parent": In(self.group),
            "any_entry": In(self.entry),
        })

    def elaborate(self, platform):
        m = Module()
        ways = self.ways
        both = Signal(data.ArrayLayout(self.entry, 2 * ways))
        m.d.comb += Value.cast(both).eq(Cat(self.node, self.parent))
        stages = [
            *networks.twice(networks.sorter(self.network, ways), ways),
            *networks.merger(ways),
            *networks.twice(networks.picker(ways), ways),
        ]
        merged = _network(m, stages, both, "stage")
        upper, lower = (Signal(self.group, name=name) for name in ("upper", "lower"))
        stops = _is_picked(self.node) & _is_picked(self.parent) & _is_ordered(self.parent,
                                                                             self.node)
        m.d.comb += [
            Cat(upper, lower).eq(merged),
            Assert(_is_picked(upper) & _is_picked(lower), "picked"),
            Assert(_is_ordered(lower, upper), "heap"),
            Assert(_count([upper, lower], self.any_entry)
                   == _count([self.node, self.parent], self.any_entry), "every entry once"),
            Assert(~stops | (_count([lower], self.any_entry)
                             == _count([self.parent], self.any_entry)), "nothing to change"),
        ]
        return m
