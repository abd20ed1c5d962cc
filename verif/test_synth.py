# amaranth: UnusedElaboratable=no
"""Tests of synthesis: figures, bad libraries, missing tools, the built-in library, benchmarks."""

import argparse
import dataclasses
import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import RisParameters, SelectionParameters, SorterParameters, TisgParameters
from rtl.catalogue import block
from rtl.memory import Memory, MemoryShape
from scripts import pdk as pdk_command
from scripts import synth as synth_command
from synth import cache, flow, liberty, macros, netlist, sta, technology, yosys
from synth import pdk as pdks
from synth.benchmarks.rows import Judged, Technologies, rows
from synth.pdk import make_builtin45
from synth.process import ToolError, run

needs_sta = pytest.mark.skipif(sta.version() is None, reason=f"no OpenSTA: {sta.INSTALL}")

ONE_SCRIPT = flow.Options(scripts=("default",), timing=False, split=False)


class Accumulator(wiring.Component):
    """Adds ``a`` to a sum in every clock; with ``hold``, only if ``en``, and without reset."""

    def __init__(self, width, hold=False):
        self.width, self.hold = width, hold
        super().__init__({"a": In(width), "en": In(1), "total": Out(width)})

    def elaborate(self, platform):
        m = Module()
        total = Signal(self.width, reset_less=self.hold)
        m.d.comb += self.total.eq(total)
        with m.If(self.en if self.hold else 1):
            m.d.sync += total.eq(total + self.a)
        return m


class Nest(wiring.Component):
    """Two accumulators in a row and a register of its own."""

    a: In(6)
    total: Out(6)

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = first = Accumulator(6)
        m.submodules.second = second = Accumulator(6)
        delayed = Signal(6)
        m.d.comb += [first.a.eq(self.a), second.a.eq(delayed), self.total.eq(second.total)]
        m.d.sync += delayed.eq(first.total)
        return m


class Stored(wiring.Component):
    """A memory of the wrapper between registers."""

    addr: In(6)
    data: In(8)
    out: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Memory(MemoryShape(64, 8))
        m.d.sync += self.out.eq(rows.read_data ^ self.data)
        m.d.comb += [
            rows.read_en.eq(1),
            rows.read_addr.eq(self.addr),
            rows.write_en.eq(1),
            rows.write_addr.eq(self.addr),
            rows.write_data.eq(self.data),
        ]
        return m


class Bare(wiring.Component):
    """A memory that is not of the wrapper."""

    addr: In(10)
    out: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=8, depth=1024, init=[])
        write, read = rows.write_port(), rows.read_port()
        m.d.comb += [read.addr.eq(self.addr), self.out.eq(read.data)]
        m.d.comb += [write.addr.eq(self.addr), write.en.eq(1), write.data.eq(self.addr)]
        return m


class Foreign(wiring.Component):
    """Something that the built-in library has no cell for."""

    a: In(1)
    z: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.cell = Instance("foreign_cell", i_a=self.a, o_z=self.z)
        return m


@pytest.fixture(scope="module")
def builtin():
    """Technology that comes with the project."""
    return technology.load(None, [])


@pytest.fixture
def no_pdks(monkeypatch):
    """Clear the settings that name PDKs."""
    for setting in ("KVSMITH_PDK_ROOT", "ORFS_HOME", "PDK_ROOT"):
        monkeypatch.delenv(setting, raising=False)


@pytest.fixture
def nangate(shared_pdk, monkeypatch):
    """Nangate45 from the files beside the checkout."""
    monkeypatch.setenv("KVSMITH_PDK_ROOT", str(shared_pdk))
    return technology.load("nangate45", [])


def command(module, *arguments):
    """Exit code of a command with these arguments."""
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    args = parser.parse_args(list(arguments))
    return args.run(args)


# Figures


@needs_sta
def test_figures_of_an_accumulator(builtin):
    result = flow.measure(Accumulator(8), builtin, name="accumulator")

    assert result["flops"] == 8
    assert result["clock_gates"] == 0
    assert result["area_um2"] == min(run["area_um2"] for run in result["scripts"][:1])
    assert result["area_ge"] == round(result["area_um2"] / builtin.cells["b45_nand2_1"].area)
    assert 8 * builtin.cells["b45_dff_1"].area < result["area_um2"] < 100
    assert 50 < result["delay_ps"] < 600
    # Setup and clock to output come on top of what ABC sees.
    assert 500 < result["fmax_mhz"] < 1e6 / result["delay_ps"]
    assert result["fmax_mhz"] == max(run["fmax_mhz"] for run in result["scripts"])


@needs_sta
def test_critical_path_is_in_block_terms(builtin):
    options = flow.Options(scripts=("default",), split=False)
    path = flow.measure(Nest(), builtin, options, name="nest")["critical_path"]

    origins = ("input a[", "first.total[", "second.total[", "delayed[")
    assert path["from"].startswith(origins) and path["to"].startswith(origins[1:])
    assert path["cells"] > 2


@needs_sta
def test_combinational_block_has_a_path_but_no_frequency(builtin):
    class Xor(wiring.Component):
        a: In(4)
        z: Out(1)

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.z.eq(self.a.xor())
            return m

    result = flow.measure(Xor(), builtin, flow.Options(split=False), name="xor4")

    assert result["fmax_mhz"] is None
    assert result["delay_ps"] > 0
    assert result["critical_path"]["from"].startswith("input a[")
    assert result["critical_path"]["to"] == "output z"


def test_sub_blocks_sum_up_to_the_whole(builtin):
    options = flow.Options(scripts=("default",), timing=False)
    result = flow.measure(Nest(), builtin, options, name="nest")
    whole, *below = result["sub_blocks"]

    assert [row["path"] for row in below] == ["first", "second"]
    assert [row["flops"] for row in (whole, *below)] == [18, 6, 6]
    own = whole["area_um2"] - sum(row["area_um2"] for row in below)
    assert own == pytest.approx(6 * builtin.cells["b45_dff_1"].area, rel=0.5)
    # Flattening lets logic move across borders, by no more than this.
    assert whole["area_um2"] == pytest.approx(result["area_um2"], rel=0.1)


def test_memories_are_macros_beside_the_area(builtin):
    result = flow.measure(Stored(), builtin, name="stored")

    assert result["memory_bits"] == 512
    assert result["memory_area_um2"] == pytest.approx(512 * builtin.pdk.memory.um2_per_bit)
    assert result["flops"] == 8
    assert result["area_um2"] < 100
    if result["tools"]["opensta"]:
        assert result["critical_path"]["from"].startswith("rows.macro.o_read_data[")
        assert result["critical_path"]["period_ps"] > builtin.pdk.memory.access_ps


@pytest.mark.parametrize("gating, gates, flops", [("icg", 1, 8), ("enable", 0, 8), (None, 1, 8)])
def test_enabled_registers_are_gated_or_multiplexed(builtin, gating, gates, flops):
    options = dataclasses.replace(ONE_SCRIPT, clock_gate=gating)
    result = flow.measure(Accumulator(8, hold=True), builtin, options, name="held")

    assert (result["clock_gates"], result["flops"]) == (gates, flops)


def test_clock_gates_save_area(builtin):
    areas = [
        flow.measure(
            Accumulator(16, hold=True),
            builtin,
            dataclasses.replace(ONE_SCRIPT, clock_gate=gating),
            name="held",
        )["area_um2"]
        for gating in ("icg", "enable")
    ]
    assert areas[0] < areas[1]


def test_figures_are_kept_by_what_they_depend_on(builtin, tmp_path, monkeypatch):
    first = flow.measure(Accumulator(4), builtin, ONE_SCRIPT, name="four", store=tmp_path)
    monkeypatch.setattr(yosys, "run_script", lambda *_: pytest.fail("measured again"))

    assert flow.measure(Accumulator(4), builtin, ONE_SCRIPT, name="four", store=tmp_path) == first
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        flow.measure(Accumulator(5), builtin, ONE_SCRIPT, name="four", store=tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{first['inputs']}.json"
    file.write_text(json.dumps(first | {"inputs": "other"}))
    assert cache.load(tmp_path, first["inputs"]) is None


def test_nothing_is_left_behind_when_yosys_fails(builtin, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ToolError):
        flow.measure(Foreign(), builtin, ONE_SCRIPT, name="foreign", store=tmp_path / "store")

    assert list(tmp_path.iterdir()) == []


# Options


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scripts": ("quick",)},
         "Script must be one of default, structure, choice, fast, area, not 'quick'"),
        ({"clock_gate": "maybe"}, "Clock gate must be one of none, enable, icg, not 'maybe'"),
        ({"clock_mhz": 0.0}, "Clock MHz must be from 1 to 100000, not 0"),
        ({"clock_mhz": float("nan")}, "Clock MHz must be from 1 to 100000, not nan"),
    ],
)  # fmt: skip
def test_rejects_bad_options(options, message):
    with pytest.raises(ValueError) as caught:
        flow.Options(**options)
    assert str(caught.value) == message


def test_no_clock_gating_is_for_blocks_that_cannot_stall(builtin):
    options = dataclasses.replace(ONE_SCRIPT, clock_gate="none")
    sorter = block("sorter")
    with pytest.raises(ValueError) as caught:
        flow.measure(sorter.make(SorterParameters(ways=4)), builtin, options, name="sorter")
    assert str(caught.value) == (
        "Clock gate none needs a block that cannot stall, which sorter with these parameters is "
        "not: set stall=false where the block has it, or use enable or icg"
    )
    moving = sorter.make(SorterParameters(ways=4, stall=False))
    assert flow.measure(moving, builtin, options, name="sorter")["clock_gates"] == 0


def test_clock_frequency_trades_area_for_speed(builtin):
    slow, quick = (
        flow.measure(
            Accumulator(24),
            builtin,
            flow.Options(scripts=("choice",), clock_mhz=clock, timing=False, split=False),
            name="accumulator",
        )
        for clock in (50, 5000)
    )
    assert slow["area_um2"] < quick["area_um2"]
    assert slow["delay_ps"] > quick["delay_ps"]


# Libraries


def write(path, text):
    """Write a text file, compressed if its name says so."""
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


BUILTIN_TEXT = make_builtin45.text()


def without(*kinds):
    """Built-in library less the cells whose names begin so."""
    head, *cells = BUILTIN_TEXT.removesuffix("}\n").split("  cell (b45_")
    kept = [cell for cell in cells if not cell.startswith(kinds)]
    return "  cell (b45_".join([head, *kept]) + "}\n"


def test_builtin_library_is_what_its_script_writes():
    assert make_builtin45.TARGET.read_text() == BUILTIN_TEXT


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("notes.lib", b"Just a text.\n",
         "{path} is no liberty file: it has no library group; give a .lib or .lib.gz file"),
        ("empty.lib", b"",
         "{path} is no liberty file: it has no library group; give a .lib or .lib.gz file"),
        ("noise.lib.gz", b"no gzip at all", "{path} is no complete gzip file; get the file again"),
        ("half.lib.gz", gzip.compress(BUILTIN_TEXT.encode())[:-900],
         "{path} is no complete gzip file; get the file again"),
        ("text.lib.gz", gzip.compress(b"Just a text.\n"),
         "{path} is no liberty file: it has no library group; give a .lib or .lib.gz file"),
        ("cut.lib", BUILTIN_TEXT[: BUILTIN_TEXT.rindex("function")].encode(),
         "{path} is truncated or damaged: braces are out of balance by 3; get the file again"),
        ("bare.lib", b"library (none) { }\n",
         "{path} has no cells; give a liberty file of standard cells or macros"),
        ("flopless.lib", without("dff", "clkgate").encode(),
         "No flip-flop in flopless.lib; add the liberty file of the sequential cells"),
    ],
)  # fmt: skip
def test_rejects_bad_liberty_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        technology.load(None, [path])
    assert str(caught.value) == message.format(path=path)


def test_rejects_a_missing_liberty_file(tmp_path):
    with pytest.raises(ValueError) as caught:
        technology.load(None, [tmp_path / "no.lib"])
    assert str(caught.value) == f"No liberty file {tmp_path / 'no.lib'}; check the path"


def test_rejects_a_library_of_another_pdk(tmp_path):
    path = write(tmp_path / "my.lib.gz", BUILTIN_TEXT)
    with pytest.raises(ValueError) as caught:
        technology.load("nangate45", [path])
    assert str(caught.value) == (
        "Cell BUF_X2 of PDK nangate45 is not in my.lib.gz; give that PDK's liberty files, or "
        "leave --pdk out"
    )


def test_recognises_a_pdk_by_its_cells(tmp_path):
    assert technology.load(None, [write(tmp_path / "my.lib", BUILTIN_TEXT)]).pdk.name == "builtin45"


def test_derives_settings_for_a_foreign_library(tmp_path):
    path = write(tmp_path / "foreign.lib", BUILTIN_TEXT.replace("b45_", "mine_"))
    chosen = technology.load(None, [path])

    assert (chosen.pdk.nand2, chosen.pdk.driving_cell) == ("mine_nand2_1", "mine_buf_2")
    result = flow.measure(Accumulator(4), chosen, ONE_SCRIPT, name="accumulator")
    assert (result["pdk"], result["flops"]) == ("liberty", 4)
    with pytest.raises(ValueError) as caught:
        flow.measure(Stored(), chosen, ONE_SCRIPT, name="stored")
    assert str(caught.value) == (
        "stored has memories, and nothing is known of macros for foreign.lib: name the PDK with "
        "--pdk"
    )


def test_strips_default_wire_loads(tmp_path):
    text = BUILTIN_TEXT.replace("nom_process", 'default_wire_load : "5K" ;\n  nom_process')
    assert "default_wire_load" not in liberty.read(write(tmp_path / "w.lib", text)).text


# Netlists that are not whole


def test_foreign_cell_is_an_error(builtin):
    with pytest.raises(ToolError, match=r"^Yosys: .*foreign_cell.*"):
        flow.measure(Foreign(), builtin, ONE_SCRIPT, name="foreign")


def test_incomplete_mapping_is_an_error(builtin, tmp_path):
    """Enabled flops without a cell or a way to make one stay Yosys's own."""
    statistics = {"modules": {"\\top": {"num_cells_by_type": {"b45_inv_1": 3, "$_DLATCH_P_": 2}}}}
    path = tmp_path / "stat.json"
    path.write_text("A notice before it.\n" + json.dumps(statistics))
    with pytest.raises(ToolError) as caught:
        netlist.contents(path, "top", builtin.cells, set())
    assert str(caught.value) == (
        "The library maps the block incompletely: no cell for $_DLATCH_P_; give all liberty files "
        "of the PDK"
    )


def test_missing_clock_gate_is_an_error(tmp_path):
    chosen = technology.load(None, [write(tmp_path / "few.lib", without("clkgate"))])
    with pytest.raises(ToolError) as caught:
        flow.measure(Accumulator(8, hold=True), chosen, ONE_SCRIPT, name="accumulator")
    assert str(caught.value) == (
        "The library maps the block incompletely: no cell for b45_clkgate_1; give all liberty "
        "files of the PDK"
    )


def test_large_inferred_memory_is_an_error(builtin):
    with pytest.raises(ValueError) as caught:
        flow.measure(Bare(), builtin, ONE_SCRIPT, name="bare")
    assert str(caught.value) == (
        "bare has 8192 bits of memory that would become flip-flops, above 4096: make them with "
        "rtl.memory.Memory, which is mapped onto macros"
    )


@needs_sta
def test_black_box_never_yields_a_number(builtin, tmp_path):
    (library,) = builtin.write(tmp_path)
    library.write_text(without("xor", "dff"))
    path = tmp_path / "top.v"
    path.write_text("module top(a, z); input a; output z; b45_dff_1 r(.D(a), .Q(z)); endmodule\n")
    conditions = sta.Conditions(None, "b45_buf_2", 3, 0)
    with pytest.raises(ToolError) as caught:
        sta.analyse(path, "top", [library], conditions)
    assert str(caught.value) == (
        "OpenSTA knows no cell b45_dff_1; add the liberty file that has it"
    )


@needs_sta
def test_netlist_without_paths_has_no_frequency(builtin, tmp_path):
    libraries = builtin.write(tmp_path)
    path = tmp_path / "top.v"
    path.write_text("module top(a, z); input a; output z; b45_tie1 r(.Z(z)); endmodule\n")
    assert sta.analyse(path, "top", libraries, sta.Conditions(None, "b45_buf_2", 3, 0)) is None


@needs_sta
def test_uncertainty_lengthens_the_period(builtin, tmp_path):
    libraries = builtin.write(tmp_path)
    path = tmp_path / "top.v"
    path.write_text("module top(clk, z); input clk; output z; wire n; b45_inv_1 i(.A(z), .Z(n));"
                    " b45_dff_1 r(.CK(clk), .D(n), .Q(z)); endmodule\n")  # fmt: skip
    periods = []
    for uncertainty in (0, 50):
        conditions = sta.Conditions("clk", "b45_buf_2", 3, uncertainty)
        worst = sta.analyse(path, "top", libraries, conditions)
        assert worst is not None
        periods.append(worst.period_ps)
    assert periods[1] - periods[0] == pytest.approx(50, abs=0.1)
    # Clock to output, an inverter, setup.
    assert 110 < periods[0] < 160


# Tools


def fake(folder, name, text):
    """Put a command on a PATH of its own."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(folder)


def test_without_opensta_there_is_no_frequency(builtin, tmp_path, monkeypatch, capsys, no_pdks):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert command(synth_command, "synth", "sorter", "--set", "ways=4", "--json") == 0
    output = capsys.readouterr()
    (result,) = json.loads(output.out)
    assert result["fmax_mhz"] is None and result["critical_path"] is None
    assert result["delay_ps"] > 0
    assert output.err.endswith(
        "synth: no frequency without OpenSTA; install it: apt-get install opensta\n"
    )


def test_rejects_an_old_opensta(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", fake(tmp_path, "sta", "echo 1.9.3"))
    with pytest.raises(ToolError) as caught:
        sta.version()
    assert str(caught.value) == (
        "OpenSTA must be 2.0.17 or newer, not 1.9.3: apt-get install opensta"
    )


def test_rejects_an_sta_that_ends_silently(builtin, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", fake(tmp_path, "sta", "exit 0"))
    path = tmp_path / "top.v"
    path.write_text("module top(); endmodule\n")
    with pytest.raises(ToolError) as caught:
        sta.analyse(path, "top", builtin.write(tmp_path), sta.Conditions(None, "b45_buf_2", 3, 0))
    assert str(caught.value) == "OpenSTA ended with code 0 and without a result"


def test_rejects_an_old_yosys(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.33")
    with pytest.raises(ToolError) as caught:
        yosys.version()
    assert str(caught.value) == "pyosys must be 0.48 or newer, not 0.33: pip install pyosys"


def test_rejects_a_missing_yosys(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(ToolError) as caught:
        yosys.version()
    assert str(caught.value) == "Yosys is missing: pip install pyosys"


def test_yosys_error_is_one_sentence(tmp_path):
    with pytest.raises(ToolError) as caught:
        yosys.run_script("read_rtlil nothing.il\n", tmp_path)
    assert str(caught.value).startswith("Yosys: ") and "\n" not in str(caught.value)


def test_child_that_hangs_is_ended(tmp_path):
    with pytest.raises(ToolError, match=r"took longer than 0.2 s$"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, timeout=0.2)


def test_missing_command_is_one_sentence(tmp_path):
    with pytest.raises(ToolError) as caught:
        run(["no-such-tool"], tmp_path)
    assert str(caught.value) == "Cannot start no-such-tool: No such file or directory"


# PDKs and macros


def test_every_pdk_description_is_readable():
    assert pdks.names()[0] == "builtin45"
    assert {"asap7", "ihp-sg13g2", "nangate45", "sky130hd"} < set(pdks.names())
    for name in pdks.names():
        assert pdks.pdk(name).get


def test_unknown_pdk_lists_those_known(no_pdks):
    with pytest.raises(ValueError) as caught:
        technology.load("tsmc", [])
    assert str(caught.value) == (
        "Unknown PDK 'tsmc': known are builtin45, asap7, ihp-sg13g2, nangate45, sky130hd"
    )


def test_pdk_that_is_not_here_says_how_to_get_it(no_pdks, monkeypatch, tmp_path):
    with pytest.raises(ValueError) as caught:
        technology.load("nangate45", [])
    assert str(caught.value) == (
        "PDK nangate45 is not on this machine: searched nothing, as KVSMITH_PDK_ROOT, ORFS_HOME "
        "and PDK_ROOT are unset; get it with: git clone "
        "https://github.com/The-OpenROAD-Project/OpenROAD-flow-scripts and set ORFS_HOME to it"
    )
    monkeypatch.setenv("ORFS_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=rf"searched {tmp_path}/flow/platforms \(ORFS_HOME\);"):
        technology.load("nangate45", [])


def test_pdks_are_searched_for_in_order(no_pdks, monkeypatch, tmp_path):
    below = "nangate45/lib/NangateOpenCellLibrary_typical.lib"
    for setting, folder in (("ORFS_HOME", "orfs/flow/platforms"), ("KVSMITH_PDK_ROOT", "mine")):
        path = tmp_path / folder / below
        path.parent.mkdir(parents=True)
        path.write_text(BUILTIN_TEXT)
        monkeypatch.setenv(setting, str(tmp_path / folder.split("/")[0]))
        found = pdks.pdk("nangate45").find()
        assert found is not None
        assert (found[0].setting, found[1]) == (setting, (path,))


def test_pdk_list_names_what_is_found_and_how_to_get_the_rest(no_pdks, capsys):
    assert command(pdk_command, "pdk", "list", "--json") == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert [name for name, row in listed.items() if row["found"]] == ["builtin45"]
    assert command(pdk_command, "pdk", "list") == 0
    assert "nangate45   no     git clone https://github.com" in capsys.readouterr().out


def test_memory_is_tiled_by_the_cheapest_macro():
    figures = pdks.pdk("builtin45").memory
    assert figures is not None
    offered = [macros.Macro("small", 64, 64, 4845), macros.Macro("large", 512, 64, 17301)]

    assert macros.area(MemoryShape(512, 64), offered, figures) == (17301, "1 x large")
    assert macros.area(MemoryShape(65, 8), offered, figures) == (9690, "2 x small")
    assert macros.area(MemoryShape(1024, 65), offered, figures) == (4 * 17301, "4 x large")
    assert macros.area(MemoryShape(64, 8), [], figures)[0] == pytest.approx(512 * 0.55)


# Command line


KEYS = {
    "block", "parameters", "pdk", "area_um2", "area_ge", "flops", "memory_bits",
    "memory_area_um2", "fmax_mhz", "delay_ps", "critical_path", "power_mw", "tools",
}  # fmt: skip


def test_json_has_the_promised_keys(monkeypatch, capsys, tmp_path, no_pdks):
    monkeypatch.chdir(tmp_path)
    arguments = ["synth", "sorter", "tisg", "--set", "sorter.ways=4", "--set", "tisg.lanes=1"]

    assert command(synth_command, *arguments, "--script", "default", "--json") == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["block"] for result in results] == ["sorter", "tisg"]
    for result in results:
        assert set(result) >= KEYS
        assert result["power_mw"] is None
    assert results[0]["parameters"]["ways"] == 4
    assert results[0]["tools"]["amaranth"]

    assert command(synth_command, *arguments, "--script", "default") == 0
    text = capsys.readouterr().out
    assert "sorter on builtin45: ways=4" in text and "sub-block (hierarchy kept)" in text


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing"], "Unknown block 'nothing': known are "),
        (["sorter", "--set", "ways=5"],
         "sorter: Ways must be one of 4, 8, 16, 32, not 5"),
        (["sorter", "--set", "wings=4"], "sorter: Unknown parameter 'wings': known are "),
        (["sorter", "--pdk", "none"], "Unknown PDK 'none': known are "),
        (["sorter", "--clock-mhz", "0"], "Clock MHz must be from 1 to 100000, not 0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, message, capsys):
    with pytest.raises(ValueError) as caught:
        command(synth_command, "synth", *arguments)
    assert str(caught.value).startswith(message)
    assert capsys.readouterr().out == ""


# Benchmarks


def test_benchmark_rows_name_known_parameters_and_peers(no_pdks, tmp_path):
    names = [row.name for row in rows(Technologies({}, tmp_path))]
    assert len(names) == len(set(names))
    assert {"score adder, fp16", "sorter, bitonic, 3 register sets"} < set(names)


@pytest.mark.parametrize(
    "value, target, at_most, shortfall",
    [(90, 100, True, 0), (110, 100, True, 0.1), (90, 100, False, 0.1), (110, 100, False, 0),
     (None, 100, True, float("inf"))],
)  # fmt: skip
def test_benchmark_shortfall(value, target, at_most, shortfall):
    assert Judged("area_um2", value, target, at_most).shortfall == pytest.approx(shortfall)


def test_benchmark_measures_a_schedule(tmp_path):
    (row,) = [r for r in rows(Technologies({}, tmp_path)) if r.name == "selection (4,2)"]
    figures, _ = row.measure()
    assert figures == {"invocations": 4}
    assert [judged.shortfall for judged in row.judge(figures)] == [0]


def test_benchmark_without_a_pdk_says_so(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.endswith(("PDK_ROOT", "ORFS_HOME"))}
    done = subprocess.run(
        [sys.executable, "-m", "synth.benchmarks", "--only", "score adder"],
        cwd=Path(__file__).parent.parent, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "not measured" in done.stdout
    assert "PDK nangate45 is not on this machine" in done.stderr


# Against the PDKs


SMALL = [
    ("sorter", SorterParameters(ways=8, stall=False)),
    ("sorter", SorterParameters(ways=4, network="odd_even_merge")),
    ("ris", RisParameters(ways=4)),
    ("selection", SelectionParameters(head_dim=8, ways=4, max_length=16, vectors_in_flight=1)),
    ("tisg", TisgParameters(lanes=2)),
    ("tisg", TisgParameters(lanes=2, score_format="fp32")),
    ("tisg", TisgParameters(lanes=2, score_format="ufix")),
]


@pytest.mark.shared
@pytest.mark.parametrize("name, parameters", SMALL, ids=lambda value: str(value)[:40])
def test_builtin_area_is_within_ten_percent_of_nangate45(builtin, nangate, name, parameters):
    areas = [
        flow.measure(block(name).make(parameters), chosen, ONE_SCRIPT, name=name)["area_um2"]
        for chosen in (builtin, nangate)
    ]
    assert areas[0] == pytest.approx(areas[1], rel=0.1)


@pytest.mark.shared
@needs_sta
@pytest.mark.parametrize("pdk", ["nangate45", "asap7"])
def test_netlists_of_a_pdk_are_timed(shared_pdk, monkeypatch, pdk):
    monkeypatch.setenv("KVSMITH_PDK_ROOT", str(shared_pdk))
    chosen = technology.load(pdk, [])
    component = block("sorter").make(SorterParameters(ways=4))
    options = flow.Options(scripts=("choice",), split=False)
    result = flow.measure(component, chosen, options, name="sorter")

    assert 500 < result["fmax_mhz"] < 1e6 / result["delay_ps"]
    assert "$" not in result["critical_path"]["from"] + result["critical_path"]["to"]


@pytest.mark.shared
def test_memory_macros_of_a_pdk(nangate):
    assert {macro.name for macro in nangate.memory_macros} >= {"fakeram45_64x64"}
    result = flow.measure(Stored(), nangate, name="stored")
    assert result["memories"][0]["macros"] == "1 x fakeram45_64x64"
    assert result["memory_area_um2"] == pytest.approx(4845, rel=0.01)


@pytest.mark.shared
def test_part_of_a_pdk_is_not_enough(shared_pdk):
    paths = sorted((shared_pdk / "asap7").glob("*SIMPLE*"))
    with pytest.raises(ValueError, match=r"^No flip-flop in asap7sc7p5t_SIMPLE"):
        technology.load("asap7", paths)
