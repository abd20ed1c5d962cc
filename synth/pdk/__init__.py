"""PDK descriptions, one TOML file each, and where their files are found."""

import dataclasses
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "BUILTIN",
    "CellPin",
    "ClockGate",
    "MemoryFigures",
    "Pdk",
    "Root",
    "names",
    "pdk",
    "roots",
]

#: PDK that comes with the project.
BUILTIN = "builtin45"

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Root:
    """A folder in which PDK files are looked for, and the setting that named it."""

    setting: str
    path: Path


@dataclasses.dataclass(frozen=True)
class CellPin:
    """A cell with one pin that matters."""

    cell: str
    pin: str


@dataclasses.dataclass(frozen=True)
class ClockGate:
    """An integrated clock gate; inputs in ``tie_low`` are for test."""

    cell: str
    enable: str
    clock: str
    gated: str
    tie_low: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MemoryFigures:
    """What is known of a PDK's memories.

    Parameters
    ----------
    macros : tuple of str
        Patterns of the macros' liberty files under a search root.
    name : str
        Regular expression with groups ``depth`` and ``width`` that a macro's cell name matches.
    um2_per_bit : float
        Where there are no macros.
    access_ps, setup_ps : float
        Clock to data, and inputs to clock, of any memory.
    source : str
        Where the figures come from.
    """

    macros: tuple[str, ...]
    name: str
    um2_per_bit: float
    access_ps: float
    setup_ps: float
    source: str


@dataclasses.dataclass(frozen=True)
class Pdk:
    """One PDK: cells by role, conditions, and alternative names of its liberty files."""

    name: str
    title: str
    get: str
    liberty: tuple[tuple[str, ...], ...]
    dont_use: tuple[str, ...]
    nand2: str
    flop: str
    buffer: str
    tie_high: CellPin
    tie_low: CellPin
    clock_gate: ClockGate | None
    driving_cell: str
    load_ff: float
    target_ps: float
    flop_ps: float
    clock_uncertainty_ps: float
    wire_load: str
    memory: MemoryFigures | None

    def find(self) -> tuple[Root, tuple[Path, ...]] | None:
        """First root that has all the liberty files, and the files."""
        for root in [Root("comes with kvsmith", _HERE)] if self.name == BUILTIN else roots():
            files = [_first(root.path, patterns) for patterns in self.liberty]
            if all(files):
                return root, tuple(file for file in files if file)
        return None

    def files(self) -> tuple[Path, ...]:
        """Liberty files.

        Raises
        ------
        ValueError
            If they are under no root; the message says how to get them.
        """
        found = self.find()
        if found is None:
            raise ValueError(
                f"PDK {self.name} is not on this machine: searched {_searched()}; get it with: "
                f"{self.get}"
            )
        return found[1]

    def macro_files(self) -> tuple[Path, ...]:
        """Liberty files of memory macros, beside the standard cells; none where there are none."""
        found = self.find()
        if found is None or self.memory is None:
            return ()
        for pattern in self.memory.macros:
            if files := sorted(found[0].path.glob(pattern)):
                return tuple(files)
        return ()


def roots() -> list[Root]:
    """Folders in which PDK files are looked for, first come first served."""
    places = (("KVSMITH_PDK_ROOT", ""), ("ORFS_HOME", "flow/platforms"), ("PDK_ROOT", ""))
    return [
        Root(setting, Path(os.environ[setting]).expanduser() / below)
        for setting, below in places
        if os.environ.get(setting)
    ]


def names() -> list[str]:
    """Names of the PDKs described, the built-in one first."""
    described = sorted(path.stem for path in _HERE.glob("*.toml"))
    return sorted(described, key=lambda name: name != BUILTIN)


def pdk(name: str) -> Pdk:
    """Read the description of a PDK.

    Raises
    ------
    ValueError
        If there is none of that name; the message lists those there are.
    """
    if name not in names():
        raise ValueError(f"Unknown PDK {name!r}: known are {', '.join(names())}")
    with (_HERE / f"{name}.toml").open("rb") as file:
        return _parse(name, tomllib.load(file))


def _parse(name: str, text: dict[str, Any]) -> Pdk:
    cells, abc, timing, memory = (text[part] for part in ("cells", "abc", "timing", "memory"))
    gate = cells.get("clock_gate")
    return Pdk(
        name=name,
        title=text["title"],
        get=text["get"],
        liberty=tuple(map(tuple, text["liberty"])),
        dont_use=tuple(text["dont_use"]),
        nand2=cells["nand2"],
        flop=cells["flop"],
        buffer=cells["buffer"],
        tie_high=CellPin(**cells["tie_high"]),
        tie_low=CellPin(**cells["tie_low"]),
        clock_gate=ClockGate(**gate | {"tie_low": tuple(gate["tie_low"])}) if gate else None,
        driving_cell=abc["driving_cell"],
        load_ff=abc["load_ff"],
        target_ps=abc["target_ps"],
        flop_ps=timing["flop_ps"],
        clock_uncertainty_ps=timing["clock_uncertainty_ps"],
        wire_load=timing["wire_load"],
        memory=MemoryFigures(**memory | {"macros": tuple(memory["macros"])}),
    )


def _first(root: Path, patterns: tuple[str, ...]) -> Path | None:
    matches: Iterator[Path] = (path for pattern in patterns for path in sorted(root.glob(pattern)))
    return next(matches, None)


def _searched() -> str:
    searched = ", ".join(f"{root.path} ({root.setting})" for root in roots())
    return searched or "nothing, as KVSMITH_PDK_ROOT, ORFS_HOME and PDK_ROOT are unset"
