"""Registers of the HiKV selector: what software sets, and what it sees."""

from pathlib import Path

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SCORE_FORMATS, HikvSelectorParameters
from rtl.bus.axi_lite import AxiLite, AxiLiteSlave
from rtl.bus.register_file import RegisterFile
from rtl.bus.register_map import RegisterMap
from rtl.hikv.first_error import capture_layout, status_layout
from rtl.hikv.hikv_selector import EVENTS
from rtl.hikv.interface import Grouping, budget_layout, command_layout

__all__ = ["ADDRESS_WIDTH", "SelectorRegisters", "register_map"]

#: Bits of a byte address of the registers.
ADDRESS_WIDTH = 12


def register_map() -> RegisterMap:
    """Load the description of the registers, the same for all parameters."""
    return RegisterMap.load(Path(__file__).with_name("hikv_selector_axi.rdl"))


class SelectorRegisters(wiring.Component):
    """Register file of the selector, with the meaning of its registers.

    What software sets holds from the clock after the write on. Requests (``abort``, ``o_budget``)
    are held until a clock in which ``enable`` is high. The selector's flags and capture move into
    registers as soon as they are there, and are cleared in the selector.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    axi : AxiLite, as its slave
    enable : ``In(1)``
        The selector's clock is enabled.
    take_commands, index_enable, grouping, b_iik, b_iiv, release_limit : ``Out``
    abort, abort_context : ``Out``
    clear : ``Out(1)``
        Takes the selector's flags and capture back: they are stored here.
    o_budget : stream of :func:`rtl.hikv.interface.budget_layout`
    wake : ``Out(1)``
        A request, or something to store, waits for an enabled clock.
    busy : ``In(1)``
    status, capture, events
        Of the selector, see there.
    irq : ``Out(1)``
        High while a flag that the mask lets through is set, a clock later.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        context = command_layout(p)["context"].shape
        super().__init__({
            "axi": In(AxiLite(ADDRESS_WIDTH)),
            "enable": In(1),
            "take_commands": Out(1),
            "index_enable": Out(1),
            "grouping": Out(Grouping),
            "b_iik": Out(range(p.head_dim + 1)),
            "b_iiv": Out(range(p.head_dim + 1)),
            "release_limit": Out(32),
            "abort": Out(1),
            "abort_context": Out(context),
            "clear": Out(1),
            "o_budget": Out(stream.Signature(budget_layout(p))),
            "wake": Out(1),
            "busy": In(1),
            "status": In(status_layout()),
            "capture": In(capture_layout(p)),
            "events": In(data.StructLayout(dict.fromkeys(EVENTS, 1))),
            "irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.slave = slave = AxiLiteSlave(ADDRESS_WIDTH)
        m.submodules.file = file = RegisterFile(register_map(), ADDRESS_WIDTH - 2)
        wiring.connect(m, wiring.flipped(self.axi), slave.axi)
        wiring.connect(m, slave.bus, file.bus)

        self._parameters(m, file)
        self._settings(m, file)
        self._requests(m, file)
        self._observations(m, file)
        return m

    def _parameters(self, m, file):
        p = self.parameters
        constants = {
            "sizes_contexts": p.contexts,
            "sizes_max_slots": p.max_slots,
            "capacities_cap_recent": p.cap_recent,
            "capacities_cap_important": p.cap_important,
            "vectors_head_dim": p.head_dim,
            "vectors_lanes": p.lanes,
            "vectors_ways": p.ways,
            "options_queries": p.queries,
            "options_tag_width": p.tag_width,
            "options_index_lanes": p.index_lanes,
            "options_score_format": SCORE_FORMATS.index(p.score_format),
            "options_parity": p.parity,
        }
        m.d.comb += [getattr(file, name).eq(int(value)) for name, value in constants.items()]

    def _settings(self, m, file):
        head_dim = self.parameters.head_dim
        grouping = file.control_grouping
        m.d.comb += [
            self.take_commands.eq(file.control_enable),
            self.index_enable.eq(file.control_index_enable),
            Value.cast(self.grouping).eq(Mux(grouping == 3, Grouping.UNION.value, grouping)),
            self.b_iik.eq(Mux(file.b_ii_k > head_dim, head_dim, file.b_ii_k)),
            self.b_iiv.eq(Mux(file.b_ii_v > head_dim, head_dim, file.b_ii_v)),
            self.release_limit.eq(file.release_limit_clocks),
        ]

    def _requests(self, m, file):
        p = self.parameters
        recent, important = file.head_budget_cap_recent, file.head_budget_cap_important
        context = file.head_budget_write_context
        fits, pending = Signal(), Signal()
        entry = Signal(budget_layout(p), reset_less=True)

        m.d.comb += [
            fits.eq((context < p.contexts) & (recent <= p.max_slots) & (important <= p.max_slots)),
            self.o_budget.valid.eq(pending),
            self.o_budget.payload.eq(entry),
            file.state_budget_busy.eq(pending),
            self.abort_context.eq(file.abort_context),
        ]

        m.d.sync += self.abort.eq(file.abort_go | self.abort & ~self.enable)
        with m.If(self.o_budget.ready & self.enable):
            m.d.sync += pending.eq(0)
        with m.If(file.head_budget_write_go & ~pending):
            m.d.sync += [
                pending.eq(1),
                entry.context.eq(context),
                # No recent bank: what the entry's fields cannot hold is refused with its table.
                entry.cap_recent.eq(Mux(fits, recent, 0)),
                entry.cap_important.eq(important),
                entry.last.eq(file.head_budget_write_last),
            ]

    def _observations(self, m, file):
        first = Signal(self.capture.shape())
        names = [name for name, _ in self.status.shape()]
        raised = file.interrupt_mask_flags & Cat(getattr(file, f"status_{n}") for n in names)
        news = self.status.as_value().any() | self.capture.valid

        for name in names:
            m.d.comb += getattr(file, f"status_{name}_set").eq(self.status[name] & self.enable)
        m.d.comb += [
            self.clear.eq(news),
            self.wake.eq(news | self.o_budget.valid | self.abort),
            file.state_busy.eq(self.busy),
            file.interrupt_status_flags.eq(raised),
            file.capture_valid.eq(first.valid),
            file.capture_cause.eq(Value.cast(first.cause)),
            file.capture_context.eq(first.context),
            file.capture_tag_tag.eq(first.tag),
            file.count_clocks_value_event.eq(1),
            file.count_enabled_clocks_value_event.eq(self.enable),
        ]
        for name in EVENTS:
            event = self.events[name] & self.enable
            m.d.comb += getattr(file, f"count_{name}_value_event").eq(event)

        m.d.sync += self.irq.eq(raised.any())
        with m.If(file.control_clear):
            m.d.sync += first.valid.eq(0)
        with m.If(self.capture.valid & self.enable & (~first.valid | file.control_clear)):
            m.d.sync += first.eq(self.capture)
