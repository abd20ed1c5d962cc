"""Run the cocotb bench of every block on its emitted Verilog, at each of its configurations."""

import os

import pytest

from rtl.catalogue import BLOCKS
from verif.regression import DEFAULT_SEED, cases, has_bench
from verif.simulate import SimulatorError, find_simulator

SEED = int(os.environ.get("KVSMITH_SEED", DEFAULT_SEED))


@pytest.mark.netlist
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases()])
def test_netlist(case):
    if case.simulator == "icarus":
        try:
            find_simulator("icarus")
        except SimulatorError as error:
            pytest.skip(str(error))

    outcome = case.run(SEED)

    assert outcome.passed, outcome.report()


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_has_a_bench(block):
    assert has_bench(block), f"verif/tb_{block}.py and verif/tb_{block}.toml are missing"


@pytest.mark.parametrize("block", BLOCKS)
def test_every_bench_runs_on_both_simulators(block):
    assert {case.simulator for case in cases([block])} == {"verilator", "icarus"}
