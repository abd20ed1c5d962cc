"""Which configurations of which blocks the cocotb benches run at, and running them.

``verif/tb_<block>.toml`` beside the bench lists them::

    [[configuration]]                       # smallest: also checked for unknown values
    parameters = { ways = 4, index_width = 7 }
    simulators = ["verilator", "icarus"]

    [[configuration]]                       # the paper's
    parameters = {}

    [[configuration]]
    parameters = { network = "size_optimal" }
    tests = "matches_golden|resets"         # only tests whose names match

Parameters left out have their defaults; ``simulators`` defaults to Verilator only. Mark small ones
for Icarus: it is slow on wide ports.
"""

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from golden.parameters import Parameters
from rtl.catalogue import BLOCKS
from rtl.catalogue import block as find_block
from verif.simulate import SIMULATORS, Outcome, simulate

__all__ = ["DEFAULT_SEED", "Case", "cases", "has_bench", "run"]

#: Seed of the regression when none is given.
DEFAULT_SEED = 1

_FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
    """One simulation of the regression."""

    block: str
    parameters: Parameters
    simulator: str
    tests: str | None

    @property
    def name(self) -> str:
        """Block, parameters that differ from their defaults, and simulator."""
        default = type(self.parameters)().as_dict()
        changed = [f"{k}={v}" for k, v in self.parameters.as_dict().items() if v != default[k]]
        label = "-".join([self.block, *changed, self.simulator])
        return label.replace(" ", "")

    def run(self, seed: int, waves: bool = False) -> Outcome:
        """Simulate it."""
        return simulate(
            self.block,
            self.parameters,
            simulator=self.simulator,
            seed=seed,
            waves=waves,
            tests=self.tests,
        )


def has_bench(block: str) -> bool:
    """Whether the block has a bench with configurations."""
    return all((_FOLDER / f"tb_{block}.{suffix}").exists() for suffix in ("py", "toml"))


def _read(block: str, path: Path) -> Iterator[Case]:
    content = tomllib.loads(path.read_text())
    entries: list[dict[str, Any]] = content.pop("configuration", [])
    if content or not entries:
        raise ValueError(f"{path.name} must hold [[configuration]] tables only, at least one")
    for entry in entries:
        if unknown := set(entry) - {"parameters", "simulators", "tests"}:
            raise ValueError(f"{path.name}: unknown {sorted(unknown)} in a configuration")
        parameters = find_block(block).parameters.parse(entry.get("parameters", {}))
        if (tests := entry.get("tests")) is not None:
            re.compile(tests)
        for simulator in entry.get("simulators", ["verilator"]):
            if simulator not in SIMULATORS:
                raise ValueError(f"{path.name}: unknown simulator {simulator!r}")
            yield Case(block, parameters, simulator, tests)


def cases(blocks: Sequence[str] = (), simulator: str | None = None) -> list[Case]:
    """List the simulations of blocks (none: all with a bench), on one simulator (none: any).

    Raises
    ------
    ValueError
        If there is no such block, a named block has no bench, or a configuration is illegal.
    """
    for name in blocks:
        find_block(name)
        if not has_bench(name):
            raise ValueError(f"Block {name!r} has no bench: verif/tb_{name}.py and .toml")
    chosen = blocks or [name for name in BLOCKS if has_bench(name)]
    found = [case for name in chosen for case in _read(name, _FOLDER / f"tb_{name}.toml")]
    return [case for case in found if simulator in (None, case.simulator)]


def run(
    chosen: Sequence[Case], *, seed: int, waves: bool = False, jobs: int = 1
) -> Iterator[Outcome]:
    """Simulate, ``jobs`` at a time; the outcomes come in the order of the cases."""
    with ThreadPoolExecutor(jobs) as pool:
        pending = [pool.submit(case.run, seed, waves) for case in chosen]
        try:
            for future in pending:
                yield future.result()
        finally:
            for future in pending:
                future.cancel()
