# amaranth: UnusedElaboratable=no
"""HiKV selector as others integrate it: AXI4-Stream for data, AXI4-Lite for registers."""

from typing import Any

from amaranth import *
from amaranth.hdl import Fragment
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorAxiParameters
from rtl.bus.activity import Activity
from rtl.bus.axi_lite import AxiLite
from rtl.bus.axi_stream import AxiStream, flat, flat_members
from rtl.hikv.hikv_selector import HikvSelector
from rtl.hikv.selector_registers import ADDRESS_WIDTH, SelectorRegisters, register_map
from rtl.memory import connecting

__all__ = ["HikvSelectorAxi"]

_IDLE_CLOCKS = 16
_INPUTS = {
    "command": "commands",
    "q": "Q of a step; packet: a query head",
    "p": "P of a step in order of slots; packet: a query head",
    "init": "tokens of INIT; packet: a context",
    "load": "rows of LOAD; packet: a context",
    "release": "steps whose reads are done",
}
_OUTPUTS = {
    "response": "answers to commands",
    "k": "selected elements of K; packet: a step",
    "v": "selected slots of V, chunk by chunk; packet: a step",
    "k_index": "selected elements of K as indices; packet: a step",
    "v_index": "selected slots of V as indices, chunk by chunk; packet: a step",
    "save": "rows of SAVE; packet: a context",
}


def _signature(stream: Any) -> AxiStream:
    layout = stream.payload.shape()
    # In a command `last` is a property of the query head: its packets are single transfers.
    ends = "last" in dict(layout) and "operation" not in dict(layout)
    # Every beat of the last chunk has `last`; its indices end with the one that has `end` too.
    return AxiStream(layout, "last" if ends else None, "end" if "end" in dict(layout) else None)


class HikvSelectorAxi(wiring.Component):
    """HiKV selector with AXI4-Stream and AXI4-Lite ports.

    It does what :class:`rtl.hikv.hikv_selector.HikvSelector` does. Payloads travel as TDATA with
    every field at a byte, ``last`` of a payload (a command's excepted) as TLAST; settings, requests
    and observations are registers (``hikv_selector_axi.rdl``).

    With ``clock_enable`` the selector's registers and memories hold while there is nothing to do:
    16 clocks after the last transfer or work they stop, one clock after a port offers a transfer
    they go on. Nothing else changes. ``test_enable`` keeps them going.

    Parameters
    ----------
    parameters : HikvSelectorAxiParameters

    Members
    -------
    s_axil_* : AXI4-Lite slave, 32-bit data
    s_axis_command_*, s_axis_q_*, s_axis_p_*, s_axis_init_*, s_axis_load_*, s_axis_release_*
        AXI4-Streams in.
    m_axis_response_*, m_axis_k_*, m_axis_v_*, m_axis_save_*
        AXI4-Streams out; ``m_axis_k_index_*``, ``m_axis_v_index_*`` if there are ``index_lanes``.
    irq : ``Out(1)``
    test_enable : ``In(1)``
        Only with ``clock_enable``.
    memory_sideband : ``In(sideband_width)``
        Goes to ``i_sideband`` of every memory that is a black box.
    """

    def __init__(self, parameters: HikvSelectorAxiParameters):
        self.parameters = p = parameters
        self._selector = HikvSelector(p.selector())
        self._axil = AxiLite(ADDRESS_WIDTH)
        self.meanings = {
            **AxiLite.meanings("s_axil"),
            "irq": "high while a flag of the status register that the mask lets through is set",
            "test_enable": "keeps all clocks enabled, for scan; 0 in operation",
            "memory_sideband": "test, repair and margin pins, to every memory; not looked at here",
        }
        self._streams: dict[str, tuple[Any, AxiStream]] = {}
        members = flat_members("s_axil", self._axil, output=False)
        for prefix, stream, meaning in self._present():
            signature = _signature(stream)
            self._streams[prefix] = stream, signature
            members |= flat_members(prefix, signature, output=prefix.startswith("m_"))
            self.meanings |= signature.meanings(prefix, meaning)
        self.axi_streams = tuple(self._streams)
        members["irq"] = Out(1)
        if p.clock_enable:
            members["test_enable"] = In(1)
        if p.sideband_width:
            members["memory_sideband"] = In(p.sideband_width)
        super().__init__(members)

    def _present(self):
        """Prefix, selector's stream and meaning of every AXI4-Stream there is."""
        for kind, prefix, names in (("i", "s_axis", _INPUTS), ("o", "m_axis", _OUTPUTS)):
            for name, meaning in names.items():
                if (stream := getattr(self._selector, f"{kind}_{name}", None)) is not None:
                    yield f"{prefix}_{name}", stream, meaning

    @property
    def latency(self) -> dict[str, int]:
        """Clocks of a register access when nothing stalls; data take as long as in the selector."""
        return {"s_axil_wvalid to s_axil_bvalid": 2, "s_axil_arvalid to s_axil_rvalid": 2}

    def extra_files(self) -> dict[str, str]:
        """C header of the registers."""
        return {"h": register_map().c_header()}

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = SelectorRegisters(self.parameters.selector())
        enable = self._enable(m, registers)
        m.submodules.selector = self._gated(enable, platform)

        wiring.connect(m, flat(self, "s_axil", self._axil), registers.axi)
        m.d.comb += [registers.enable.eq(enable), self.irq.eq(registers.irq)]
        self._connect_streams(m, enable, registers.take_commands)
        self._connect_registers(m, registers)
        return m

    def _enable(self, m, registers):
        """Clock enable of the selector."""
        if not self.parameters.clock_enable:
            return C(1)
        m.submodules.activity = activity = Activity(_IDLE_CLOCKS)
        offered = [
            getattr(self, f"{prefix}_tvalid") if prefix.startswith("s_") else stream.valid
            for prefix, (stream, _) in self._streams.items()
        ]
        m.d.comb += [
            activity.work.eq(Cat(self._selector.busy, registers.wake, offered).any()),
            activity.test_enable.eq(self.test_enable),
        ]
        return activity.enable

    def _gated(self, enable, platform):
        """Elaborate the selector, its clock enabled, its memories with all that they need."""
        sideband = self.memory_sideband if self.parameters.sideband_width else None
        with connecting(enable=enable, sideband=sideband):
            fragment = Fragment.get(self._selector, platform)
        return EnableInserter(enable)(fragment) if self.parameters.clock_enable else fragment

    def _connect_streams(self, m, enable, take_commands):
        for prefix, (stream, signature) in self._streams.items():
            port = flat(self, prefix, signature)
            if prefix.startswith("m_"):
                signature.send(m, stream, port, enable)
            else:
                takes = enable & take_commands if prefix == "s_axis_command" else enable
                signature.receive(m, port, stream, takes)

    def _connect_registers(self, m, registers):
        selector = self._selector
        m.d.comb += [
            selector.b_iik.eq(registers.b_iik),
            selector.b_iiv.eq(registers.b_iiv),
            selector.grouping.eq(registers.grouping),
            selector.release_limit.eq(registers.release_limit),
            selector.abort.eq(registers.abort),
            selector.abort_context.eq(registers.abort_context),
            selector.clear.eq(registers.clear),
            *(
                getattr(registers, name).eq(getattr(selector, name))
                for name in ("busy", "status", "capture", "events")
            ),
        ]
        if self.parameters.index_lanes:
            m.d.comb += selector.index_enable.eq(registers.index_enable)
        wiring.connect(m, registers.o_budget, selector.i_budget)
