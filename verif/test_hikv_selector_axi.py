# amaranth: UnusedElaboratable=no
"""The AXI top as others get it: page and header, files, clock gates, black boxes."""

import json
import re

import pytest

from golden.parameters import HikvSelectorAxiParameters
from rtl.generate import emit, generate
from rtl.hikv.hikv_selector_axi import HikvSelectorAxi
from rtl.hikv.selector_registers import register_map
from scripts import docs
from synth import macros
from synth.pdk import pdk
from synth.yosys import run_script

NAME = "hikv_selector_axi"
MARK = "of_selector"
SMALL = HikvSelectorAxiParameters(
    contexts=2, cap_recent=4, cap_important=4, max_slots=8, ways=4, lanes=4, head_dim=4, queries=1,
    tag_width=1, vectors_in_flight=2, steps_in_flight=2, index_lanes=0, sideband_width=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def pages():
    return docs.generated()


@pytest.mark.parametrize("file", ["hikv_selector_axi.md", "hikv_selector_axi.h"])
def test_documentation_is_up_to_date(pages, file):
    (path,) = (path for path in pages if path.name == file)

    assert path.read_text() == pages[path], "write it with `python -m scripts.docs`"


def test_a_page_without_place_is_an_error():
    with pytest.raises(ValueError, match="^The page must have one place for registers, not 0$"):
        docs._with_parts("# page\n", {"registers": "table"})


def test_header_comes_with_the_verilog_and_ports_have_streams_and_fields(tmp_path):
    generate(NAME, SMALL, tmp_path, name="top")

    assert {path.name for path in tmp_path.iterdir()} == {"top.v", "top.json", "top.f", "top.h"}
    assert (tmp_path / "top.h").read_text() == register_map().c_header()
    manifest = json.loads((tmp_path / "top.json").read_text())
    ports = {port["name"]: port for port in manifest["ports"]}
    assert ports["s_axis_q_tdata"]["stream"] == ports["s_axis_q_tlast"]["stream"] == "s_axis_q"
    command = {field["field"]: field["offset"] for field in ports["s_axis_command_tdata"]["fields"]}
    assert command == {
        "operation": 0, "context": 8, "query": 16, "first": 24, "last": 32, "tag": 40,
    }  # fmt: skip
    assert "stream" not in ports["s_axil_wdata"]
    assert all(port["width"] % 8 == 0 for name, port in ports.items() if name.endswith("tdata"))


class Netlist:
    """Flat netlist of the block, as Yosys writes it."""

    def __init__(self, path):
        module = json.loads(path.read_text())["modules"][NAME]
        self.ports, self.cells = module["ports"], module["cells"]

    def port(self, name):
        """Bits of a port."""
        return self.ports[name]["bits"]

    def registers(self):
        """Type and clock of each register, and whether it belongs to the selector."""
        for cell in self.cells.values():
            if re.fullmatch(r"\$_S?DFF.*_", cell["type"]):
                yield cell["type"], cell["connections"]["C"][0], MARK in cell["attributes"]

    def reached(self, output):
        """Find the inputs from which a path without a register leads to an output."""
        inputs = {bit: name for name, port in self.ports.items() if port["direction"] == "input"
                  for bit in port["bits"]}  # fmt: skip
        drivers = {}
        for cell in self.cells.values():
            ways = cell["port_directions"]
            holds = "ff" in cell["type"] or "mem" in cell["type"]
            sources = [bit for port, bits in cell["connections"].items() if ways[port] == "input"
                       for bit in bits]  # fmt: skip
            for port, bits in cell["connections"].items():
                if ways[port] == "output":
                    drivers |= dict.fromkeys(bits, [] if holds else sources)
        waiting, seen = list(self.port(output)), set()
        while waiting:
            bit = waiting.pop()
            if bit not in seen:
                seen.add(bit)
                waiting += drivers.get(bit, [])
        return {inputs[bit] for bit in seen & set(inputs)}


@pytest.fixture(scope="module")
def netlists(tmp_path_factory):
    """Netlist before and after mapping clock enables to gates; memories are black boxes."""
    folder = tmp_path_factory.mktemp("netlist")
    emitted = emit(HikvSelectorAxi(SMALL), NAME, black_boxes=True)
    gate = pdk("nangate45").clock_gate
    assert gate is not None
    shapes = {shape.macro: shape for shape in emitted.memories}
    (folder / "top.v").write_text(emitted.verilog)
    (folder / "macros.v").write_text("".join(map(macros.declaration, shapes.values())))
    run_script(
        f"read_verilog -lib macros.v\nread_verilog top.v\nhierarchy -check -top {NAME}\n"
        f"proc; setattr -set {MARK} 1 {NAME}.selector*/t:$dff; flatten\n"
        "setattr -unset init w:*; opt_clean; opt_expr; opt_dff -nosdff; opt_clean\n"
        "write_json plain.json\n"
        "simplemap t:$dff t:$dffe\n"
        f"clockgate -pos {gate.cell} {gate.enable}:{gate.clock}:{gate.gated}\n"
        "write_json gated.json\n",
        folder,
    )
    return Netlist(folder / "plain.json"), Netlist(folder / "gated.json"), gate, emitted.memories


def test_every_register_of_the_selector_is_behind_a_clock_gate(netlists):
    _, gated, gate, _ = netlists
    (clock,) = gated.port("clk")

    registers = list(gated.registers())
    gates = sum(cell["type"] == gate.cell for cell in gated.cells.values())
    inside = [wire == clock for _, wire, marked in registers if marked]

    assert gates > 50
    assert len(inside) > 1000
    assert sum(inside) == 0
    assert any(wire == clock for _, wire, marked in registers if not marked)
    assert all(kind == "$_DFF_P_" for kind, *_ in registers)


def test_memories_are_black_boxes_with_the_sideband(netlists):
    plain, _, _, memories = netlists

    boxes = [c for c in plain.cells.values() if c["type"].startswith("kvsmith_mem")]

    assert len(boxes) == len(memories) > 5
    assert {shape.sideband for shape in memories} == {5}
    assert all(c["connections"]["i_sideband"] == plain.port("memory_sideband") for c in boxes)


def test_outputs_follow_from_registers(netlists):
    """Save for the readiness of INIT and LOAD, which may depend on what is offered."""
    plain, *_ = netlists
    outputs = [name for name, port in plain.ports.items() if port["direction"] == "output"]

    paths = {name: plain.reached(name) - {"test_enable"} for name in outputs}

    assert {name for name, inputs in paths.items() if inputs} <= {
        "s_axis_init_tready", "s_axis_load_tready",
    }  # fmt: skip
    for name in ("init", "load"):
        prefix = f"s_axis_{name}_t"
        assert paths[f"{prefix}ready"] <= {f"{prefix}{part}" for part in ("valid", "data", "last")}
