"""Child processes: tools that end, hang or are interrupted take nothing down with them."""

import os
import signal
import subprocess
from pathlib import Path

__all__ = ["ToolError", "run"]

_TIMEOUT = 3600


class ToolError(ValueError):
    """A tool is missing, too old, or did not do what it was asked; the message is one sentence."""


def run(
    command: list[str], cwd: Path, timeout: float = _TIMEOUT, scratch: Path | None = None
) -> tuple[int, str]:
    """Exit code and output (both streams) of a command.

    Temporary files of the command go to ``scratch``, if given. The command and all that it starts
    are ended when it takes longer than ``timeout`` seconds or when the caller is interrupted.

    Raises
    ------
    ToolError
        If the command cannot be started or takes too long.
    """
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | ({"TMPDIR": str(scratch)} if scratch else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"Cannot start {command[0]}: {error.strerror}") from None
    with child:
        try:
            output, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(child)
            raise ToolError(f"{command[0]} took longer than {timeout:g} s") from None
        except BaseException:
            _end(child)
            raise
    return child.returncode, output


def _end(child: subprocess.Popen) -> None:
    if hasattr(os, "killpg"):
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.communicate()
