"""First error since it was cleared, and what kinds there were."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import Cause, command_layout

__all__ = ["FirstError", "capture_layout", "status_layout"]

_COMMANDS = (
    Cause.BAD_OPERATION,
    Cause.BAD_CONTEXT,
    Cause.NO_BUDGET,
    Cause.UNINITIALISED,
    Cause.BAD_INIT,
    Cause.BAD_LOAD,
    Cause.BAD_QUERY,
)
_CAUSES = {
    "p_length": (Cause.P_LENGTH,),
    "q_length": (Cause.Q_LENGTH,),
    "bad_command": _COMMANDS,
    "release_timeout": (Cause.RELEASE_TIMEOUT,),
    "parity": (Cause.PARITY,),
    "aborted": (Cause.ABORTED,),
}


def capture_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """Error that came first; ``tag`` is 0 if it belongs to no command."""
    return data.StructLayout({
        "valid": 1,
        "cause": Cause,
        "context": command_layout(p)["context"].shape,
        "tag": p.tag_width,
    })


def status_layout() -> data.StructLayout:
    """Sticky flags.

    ``nan``: among Q or P; ``bad_p``: a weight added nothing to a score; ``p_length``,
    ``q_length``: a vector was too short or too long; ``bad_command``: a command failed as it was
    given; ``release_timeout``: a step was not released in time; ``stray_release``: a release that
    nobody waited for; ``parity``: a row of memory is broken; ``budget_error``: a budget table does
    not fit; ``aborted``: a command was given up.
    """
    names = (
        "nan", "bad_p", "p_length", "q_length", "bad_command", "release_timeout",
        "stray_release", "parity", "budget_error", "aborted",
    )  # fmt: skip
    return data.StructLayout(dict.fromkeys(names, 1))


class FirstError(wiring.Component):
    """Keeps the flags and the first error; of several in one clock the first in order.

    Parameters
    ----------
    parameters : HikvSelectorParameters
    sources : int
        Places where errors come from.

    Members
    -------
    errors : ``In(array of capture_layout)``
        One clock each.
    seen : ``In(status_layout)``
        Flags that belong to no error, one clock each.
    clear : ``In(1)``
        Takes all back; what comes in the same clock wins.
    status, capture
        Flags, and the first error.
    """

    def __init__(self, parameters: HikvSelectorParameters, sources: int):
        self.parameters = parameters
        error = capture_layout(parameters)
        super().__init__({
            "errors": In(data.ArrayLayout(error, sources)),
            "seen": In(status_layout()),
            "clear": In(1),
            "status": Out(status_layout()),
            "capture": Out(error),
        })

    def elaborate(self, platform):
        m = Module()
        # A clock later, so that where errors are found is no longer a matter of time.
        errors = Signal.like(Value.cast(self.errors))
        seen = Signal.like(self.seen)
        found = Signal.like(self.seen)
        m.d.sync += [errors.eq(self.errors), seen.eq(self.seen)]
        errors = data.View(self.errors.shape(), errors)

        m.d.comb += found.eq(seen)
        with m.If(self.clear):
            m.d.sync += [self.status.eq(0), self.capture.valid.eq(0)]
        for name, causes in _CAUSES.items():
            kinds = [
                error.valid & (error.cause == cause) for error in errors for cause in causes
            ]
            m.d.comb += found[name].eq(Cat(kinds).any() | seen[name])
        for name, _ in self.status.shape():
            with m.If(found[name]):
                m.d.sync += self.status[name].eq(1)
        for error in reversed([errors[n] for n in range(len(errors))]):
            with m.If(error.valid & (self.clear | ~self.capture.valid)):
                m.d.sync += self.capture.eq(error)

        return m
