"""Rows of the benchmark table: read, measured, judged."""

import dataclasses
import hashlib
import importlib
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rtl.catalogue import BLOCKS, block
from rtl.sorting.schedules import schedule
from synth import flow, technology

__all__ = ["Judged", "Row", "peers", "rows"]

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Judged:
    """A figure beside its target; ``at_most`` says on which side of it the figure must be."""

    figure: str
    value: float | None
    target: float
    at_most: bool

    @property
    def ratio(self) -> float | None:
        """Figure by target."""
        return None if self.value is None else self.value / self.target

    @property
    def shortfall(self) -> float:
        """Part of the target by which the figure is on the wrong side; 0 if it is reached."""
        if self.ratio is None:
            return float("inf")
        return max(0.0, self.ratio - 1 if self.at_most else 1 - self.ratio)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table.

    Parameters
    ----------
    name : str
    measure : callable
        Figures by name, and how they came about.
    most, least : dict
        Targets by figure.
    peers : tuple of str
        Blocks of :func:`peers` to compare with.
    """

    name: str
    measure: Callable[[], tuple[dict[str, float | None], str]]
    most: dict[str, float]
    least: dict[str, float] = dataclasses.field(default_factory=dict)
    peers: tuple[str, ...] = ()

    def judge(self, figures: dict[str, float | None]) -> list[Judged]:
        """Each figure that has a target, beside it."""
        return _judge(figures, self.most, self.least)


def peers() -> dict[str, dict[str, Any]]:
    """Read the comparable blocks: by name, figures and sources as in `peers.toml`."""
    return tomllib.loads((_HERE / "peers.toml").read_text())


def rows(pdks: "Technologies") -> Iterator[Row]:
    """Rows of `rows.toml` in its order."""
    described = tomllib.loads((_HERE / "rows.toml").read_text())
    for text in described["netlist"]:
        yield _netlist_row(text, pdks)
    for text in described["schedule"]:
        yield _schedule_row(text)
    yield from _generation_rows(described["generation"]["most"])


class Technologies:
    """PDKs, each read once.

    Parameters
    ----------
    files : dict
        Liberty files by PDK, for PDKs that are not to be searched for.
    store : Path
        Where figures are kept.
    """

    def __init__(self, files: dict[str, list[Path]], store: Path):
        self._files = files
        self._loaded: dict[str, technology.Technology] = {}
        self.store = store

    def load(self, name: str) -> technology.Technology:
        """Technology of a PDK."""
        if name not in self._loaded:
            self._loaded[name] = technology.load(name, self._files.get(name, []))
        return self._loaded[name]


def _judge(
    figures: dict[str, float | None], most: dict[str, float], least: dict[str, float]
) -> list[Judged]:
    return [
        Judged(name, figures.get(name), target, at_most)
        for targets, at_most in ((most, True), (least, False))
        for name, target in targets.items()
    ]


def _component(text: dict[str, Any]) -> Any:
    entry = block(text["block"])
    parameters = entry.parameters.parse(text["parameters"])
    if "component" not in text:
        return entry.make(parameters)
    module, _, name = text["component"].partition(":")
    return getattr(importlib.import_module(module), name)(parameters)


def _netlist_row(text: dict[str, Any], pdks: Technologies) -> Row:
    most, least = text.get("most", {}), text.get("least", {})
    peer_flow = text.get("peer_flow", False)
    options = flow.Options(
        scripts=("default",) if peer_flow else tuple(text.get("scripts", flow.USUAL_SCRIPTS)),
        clock_mhz=text.get("clock_mhz"),
        timing=not peer_flow,
        split=False,
    )

    def measure():
        result = flow.measure(
            _component(text), pdks.load(text["pdk"]), options, name=text["block"], store=pdks.store
        )
        runs = [
            _figures(run, result["memory_area_um2"], text.get("per")) for run in result["scripts"]
        ]
        best = min(
            runs,
            key=lambda run: (sum(j.shortfall for j in _judge(run, most, least)), run["area_um2"]),
        )
        how = f"{text['pdk']}, script {result['scripts'][runs.index(best)]['script']}"
        return best, f"{how}, macros included" if "per" in text else how

    return Row(text["name"], measure, most, least, tuple(text.get("peers", ())))


def _figures(run: dict[str, Any], macros: float, per: int | None) -> dict[str, Any]:
    """Figures of one netlist; ``um2_each`` is its area and that of its macros by ``per`` items."""
    figures = {name: run[name] for name in ("area_um2", "delay_ps", "fmax_mhz", "flops")}
    return figures | ({"um2_each": (run["area_um2"] + macros) / per} if per else {})


def _schedule_row(text: dict[str, Any]) -> Row:
    groups, full, boundary = text["groups"], text["full"], text.get("boundary", False)

    def measure() -> tuple[dict[str, float | None], str]:
        found = schedule(groups, full, boundary)
        return {"invocations": found.invocations}, f"{found.rounds} rounds, proven when loaded"

    return Row(f"selection ({groups},{full}{'+b' if boundary else ''})", measure, text["most"])


_GENERATE = """
import sys
from pathlib import Path
from rtl.catalogue import block
from rtl.generate import generate
generate(sys.argv[1], block(sys.argv[1]).parameters(), Path(sys.argv[2]))
"""


def _generation_rows(most: dict[str, float]) -> Iterator[Row]:
    for name in BLOCKS:
        yield Row(
            f"generation of {name}", lambda name=name: _generate(name), most, {"identical": 1}
        )


def _generate(name: str) -> tuple[dict[str, float | None], str]:
    """Measure the slower of two runs in seconds, and the share of files that they agree on."""
    seconds, sums = [], []
    for seed in ("0", "1"):
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-c", _GENERATE, name, folder],
                env=os.environ | {"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
            )
            seconds.append(time.monotonic() - started)
            if done.returncode:
                last = done.stderr.strip().rpartition("\n")[2]
                raise ValueError(f"Generation of {name} failed: {last}")
            files = sorted(Path(folder).iterdir())
            sums.append({f.name: hashlib.sha256(f.read_bytes()).digest() for f in files})
    names = sums[0] | sums[1]
    identical = sum(sums[0].get(name) == sums[1].get(name) for name in names) / len(names)
    return {"seconds": round(max(seconds), 2), "identical": identical}, "two processes"
