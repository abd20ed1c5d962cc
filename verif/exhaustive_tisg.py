"""Compiled bench of one score adder: every score with every weight, against the golden model."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import accumulate
from golden.parameters import TisgParameters
from rtl.arithmetic.score_adder import ScoreAdder
from rtl.generate import emit
from verif.simulate import find_simulator

__all__ = ["ALL_WEIGHTS", "compile_adder", "mismatches", "sums"]

#: Every fp16 bit pattern: numbers of both signs, infinities, NaNs.
ALL_WEIGHTS = np.arange(1 << 16, dtype=np.uint16)

_HARNESS = Path(__file__).with_suffix(".cpp")


def compile_adder(parameters: TisgParameters, directory: Path, verilog: str | None = None) -> Path:
    """Compile the emitted Verilog of a combinational adder; return the bench's executable.

    Parameters
    ----------
    parameters : TisgParameters
        With ``adder_registers = 0``.
    directory : Path
        Where to build.
    verilog : str, optional
        Text to use instead: a module ``adder`` with the same ports, such as a netlist.
    """
    source = directory / "adder.v"
    source.write_text(verilog or emit(ScoreAdder(parameters), "adder").verilog)
    command = [
        find_simulator("verilator").path / "verilator",
        *("--cc", "--exe", "--build", "--prefix", "Vadder", "--top-module", "adder"),
        *("--Mdir", directory / "build", "-O3", "-Wno-lint", "-CFLAGS", "-O2"),
        *("-MAKEFLAGS", f"CFG_CXXFLAGS_PCH_I=-include OBJCACHE={shutil.which('ccache') or ''}"),
        *(source, _HARNESS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Verilator failed on {source}:\n{done.stdout}{done.stderr}")
    return directory / "build" / "Vadder"


def sums(
    executable: Path, scores: NDArray[np.uint32], weights: NDArray[np.uint16]
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.bool_]]]:
    """Yield the sums and bad flags of each score with all weights, score by score."""
    counts = np.array([len(scores), len(weights)], np.uint32)
    with subprocess.Popen([executable], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(counts.tobytes() + scores.astype(np.uint32).tobytes())
        process.stdin.write(weights.tobytes())
        process.stdin.close()
        for _ in scores:
            total = process.stdout.read(4 * len(weights))
            bad = process.stdout.read(len(weights))
            yield np.frombuffer(total, np.uint32), np.frombuffer(bad, np.bool_)
    if process.returncode:
        raise RuntimeError(f"{executable} ended with exit code {process.returncode}")


def mismatches(
    executable: Path,
    parameters: TisgParameters,
    scores: NDArray[Any],
    weights: NDArray[np.uint16] = ALL_WEIGHTS,
) -> tuple[int, str]:
    """Count the pairs that differ from the golden model, and describe the first one.

    Parameters
    ----------
    executable : Path
        From :func:`compile_adder`.
    parameters : TisgParameters
        The same as there.
    scores : ndarray of uint16 (``fp16``) or uint32
        Non-negative, no NaN.
    weights : ndarray of uint16
        fp16 bit patterns.
    """
    wrong, first = 0, ""
    widths = {"int_bits": parameters.int_bits, "frac_bits": parameters.frac_bits}
    for score, (total, bad) in zip(scores, sums(executable, scores, weights), strict=True):
        row = np.full(weights.shape, score)
        wanted, wanted_bad = accumulate(row, weights, parameters.score_format, **widths)
        different = np.flatnonzero((total != wanted) | (bad != wanted_bad))
        wrong += len(different)
        if len(different) and not first:
            i = different[0]
            first = (
                f"score {score:#x} + p {weights[i]:#x}: expected {wanted[i]:#x}, bad "
                f"{wanted_bad[i]}; got {total[i]:#x}, bad {bad[i]}"
            )
    return wrong, first
