"""HiKV selector (HiKV, IV-A): what stays in the cache, and what of it is read."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.command_front import CommandFront
from rtl.hikv.first_error import FirstError, capture_layout, status_layout
from rtl.hikv.interface import (
    Cause,
    Grouping,
    budget_layout,
    command_layout,
    initial_layout,
    release_layout,
    response_layout,
    row_layout,
    weights_layout,
)
from rtl.hikv.kv_selection import KvSelection
from rtl.hikv.ris_share import RisShare
from rtl.hikv.scoreboard_core import ScoreboardCore
from rtl.hikv.selection_results import selection_members

__all__ = ["EVENTS", "HikvSelector"]

#: Events of performance counters.
EVENTS = (
    "busy", "stalled_input", "stalled_output", "invocations", "steps", "promoted", "rejected",
)  # fmt: skip


class HikvSelector(wiring.Component):
    """Decides which tokens stay in the caches of many contexts, and which of their K and V to read.

    A context is the cache of one (layer, KV head). Commands on ``i_command`` are answered on
    ``o_response``, in order. There is one STEP per query head of a group, ``query`` counting from
    0: the one that is ``first`` admits a newcomer and answers with its slot, the others answer the
    same. For each STEP that is answered without error a Q of ``head_dim`` values on ``i_q`` and a P
    of ``occupied`` values on ``i_p`` follow, in the order of the steps, each up to a beat with
    ``last``. Selections leave on ``o_k`` and ``o_v``, in the order of the steps on each.

    The ``min(b_iik, head_dim)`` elements of Q that are largest in magnitude are selected for K; of
    each chunk of ``head_dim`` slots the ``min(b_iiv, slots)`` with the highest P for V. With
    ``grouping`` ``PER_QUERY`` every query head has a selection. With ``UNION`` the group has the
    union of all, with ``PER_GROUP`` one by the sums over its heads; both go with the last head.
    Slots whose P is zero in all heads that a selection serves are left out. Of equal values the
    lower index is selected; NaN ranks below every number.

    ``i_release`` says that all reads of a step are done; its tag is that of the group's last STEP.
    The next ``first`` STEP of the context is answered only then. Commands of a context wait until
    the P of its steps is through.

    Q may come before its STEP is answered, and P of one step while Q of later ones is selected.
    ``o_k`` and ``o_v`` must be taken independently of each other; Q, P and releases must not wait
    for later responses. See :class:`rtl.hikv.interface.Cause` for what fails; a failed STEP expects
    neither Q nor P. A Q or P that is too short is filled up with +0, what is too much is dropped;
    selections in which that counts have ``error``, and a P at fault aborts its context.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i_command, o_response, i_q, i_p, i_release, i_init, i_load, o_save, i_budget : streams
        Layouts in :mod:`rtl.hikv.interface`.
    o_k, o_v : ``Out(stream.Signature(selection_layout(parameters)))``
    o_k_index, o_v_index : stream of :func:`rtl.hikv.selection_results.index_layout`
        Only if ``index_lanes`` is not 0: the same selections as indices.
    index_enable : ``In(1)``
        Only if ``index_lanes`` is not 0. Change it only while not ``busy``.
    b_iik, b_iiv, grouping
        Taken with each STEP, ``grouping`` with the group's first.
    release_limit : ``In(32)``
        Most clocks that a command waits for the steps before; 0: any number.
    abort, abort_context
        The context becomes uninitialised. Its steps in flight still take their Q and P, and give
        selections with ``error``.
    clear : ``In(1)``
        Takes ``status`` and ``capture`` back.
    status, capture
        See :mod:`rtl.hikv.first_error`.
    busy : ``Out(1)``
        Something is under way.
    events : ``Out({name: 1})``
        For counters, one clock each: ``invocations`` of the sorter, ``steps`` accepted,
        ``promoted``, ``rejected``; or as long as it lasts: ``busy``, ``stalled_input`` (waits for
        Q or P), ``stalled_output`` (a selection or response waits to be taken).
    """

    meanings = {
        "i_command": "commands: STEP, INIT, LOAD, SAVE, CLEAR of a context",
        "o_response": "answers, in the order of the commands",
        "i_q": "Q of the accepted steps, fp16, the last beat of each marked",
        "i_p": "P of the accepted steps, fp16 in slot order, the last beat of each marked",
        "o_k": "elements of K to read, as a mask",
        "o_v": "slots of V to read, as a mask for each chunk",
        "o_k_index": "elements of K to read, in increasing order",
        "o_v_index": "slots of V to read, in increasing order within the chunk",
        "index_enable": "whether selections go to the index streams; change only while idle",
        "i_release": "all reads of a step are done",
        "i_init": "tokens of INIT",
        "i_load": "rows of LOAD",
        "o_save": "rows of SAVE",
        "i_budget": "head budget table",
        "b_iik": "elements of K to select, taken with each STEP",
        "b_iiv": "slots of each chunk of V to select, taken with each STEP",
        "grouping": "selections of a group's query heads, taken with its first STEP",
        "release_limit": "clocks that a command may wait for earlier steps; 0: no limit",
        "abort": "makes a context uninitialised",
        "abort_context": "which context to abort",
        "clear": "takes status and capture back",
        "status": "sticky flags",
        "capture": "first error since clear",
        "busy": "something is under way",
        "events": "events for performance counters",
    }

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        context = command_layout(p)["context"].shape
        b_ii = range(p.head_dim + 1)
        super().__init__({
            "i_command": In(stream.Signature(command_layout(p))),
            "o_response": Out(stream.Signature(response_layout(p))),
            "i_q": In(stream.Signature(weights_layout(p))),
            "i_p": In(stream.Signature(weights_layout(p))),
            "i_release": In(stream.Signature(release_layout(p))),
            "i_init": In(stream.Signature(initial_layout(p))),
            "i_load": In(stream.Signature(row_layout(p))),
            "o_save": Out(stream.Signature(row_layout(p))),
            "i_budget": In(stream.Signature(budget_layout(p))),
            "b_iik": In(b_ii),
            "b_iiv": In(b_ii),
            "grouping": In(Grouping),
            "release_limit": In(32),
            "abort": In(1),
            "abort_context": In(context),
            "clear": In(1),
            "status": Out(status_layout()),
            "capture": Out(capture_layout(p)),
            "busy": Out(1),
            "events": Out(data.StructLayout(dict.fromkeys(EVENTS, 1))),
        } | selection_members(p))

    @property
    def latency(self) -> dict[str, int]:
        """Clocks from port to port when nothing stalls and nothing else is under way."""
        return {
            "i_command to o_response, first STEP": 9,
            "i_command to o_response, other STEP": 3,
            "i_command to o_response, out of order": 2,
            "i_p to o_v, one group of slots, b_iiv = 0": 13 + self.parameters.adder_registers,
        }

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.front = front = CommandFront(p)
        m.submodules.core = core = ScoreboardCore(p.scoreboard())
        m.submodules.selection = selection = KvSelection(p)
        m.submodules.sorter = sorter = RisShare(p, core.ris)
        flipped = wiring.flipped

        for name in ("i_command", "o_response", "i_release"):
            wiring.connect(m, getattr(front, name), flipped(getattr(self, name)))
        for name in ("i_init", "i_load", "o_save", "i_budget"):
            wiring.connect(m, getattr(core, name), flipped(getattr(self, name)))
        names = ["i_q", "i_p", "o_k", "o_v"]
        if p.index_lanes:
            names += ["o_k_index", "o_v_index"]
            m.d.comb += selection.index_enable.eq(self.index_enable)
        for name in names:
            wiring.connect(m, getattr(selection, name), flipped(getattr(self, name)))
        wiring.connect(m, front.o_core, core.i_command)
        wiring.connect(m, core.o_response, front.i_core)
        wiring.connect(m, front.o_step, selection.i_step)
        wiring.connect(m, selection.o_ris, sorter.i_select)
        wiring.connect(m, sorter.o_select, selection.i_ris)
        wiring.connect(m, core.o_ris_sort, sorter.i_sort)
        wiring.connect(m, core.o_ris_pick, sorter.i_pick)
        wiring.connect(m, sorter.o_pick, core.i_ris_pick)
        weights, copied = core.i_p.payload, selection.o_p.payload
        m.d.comb += [
            core.i_p.valid.eq(selection.o_p.valid),
            selection.o_p.ready.eq(core.i_p.ready),
            weights.values.eq(copied.values.as_value()),
            *(weights[name].eq(copied[name]) for name in ("context", "last", "final")),
        ]
        m.d.comb += [
            getattr(front, name).eq(getattr(self, name))
            for name in ("b_iik", "b_iiv", "grouping", "release_limit")
        ]
        m.d.comb += [selection.context.eq(front.context), front.pending.eq(selection.pending)]
        lost = self._abort(m, front, core, selection)
        self._report(m, front, core, selection)
        self._count(m, front, core, selection, sorter, lost)

        return m

    def _abort(self, m, front, core, selection):
        """Lose a context by order, or because its P is at fault; orders go first.

        Returns whether a fault waits for an order.
        """
        lost = Signal()
        context = Signal.like(self.abort_context, reset_less=True)
        aborts, which = Signal(), Signal.like(context)
        m.d.comb += [
            aborts.eq(self.abort | lost),
            which.eq(Mux(self.abort, self.abort_context, context)),
        ]
        with m.If(~self.abort):
            m.d.sync += lost.eq(0)
        with m.If(selection.p_fault):
            m.d.sync += [lost.eq(1), context.eq(selection.p_step.context)]
        for part in (front, core, selection):
            m.d.comb += [part.abort.eq(aborts), part.abort_context.eq(which)]
        return lost

    def _report(self, m, front, core, selection):
        m.submodules.errors = errors = FirstError(self.parameters, sources=4)
        answer = front.o_response.payload
        given = front.o_response.valid & front.o_response.ready
        faults = (
            (given & (answer.cause != Cause.NONE), answer.cause, answer),
            (selection.p_fault, Cause.P_LENGTH, selection.p_step),
            (selection.q_fault, Cause.Q_LENGTH, selection.q_step),
        )
        *known, broken = [errors.errors[n] for n in range(4)]
        for error, (valid, cause, origin) in zip(known, faults, strict=True):
            m.d.comb += [
                error.valid.eq(valid),
                error.cause.eq(cause),
                error.context.eq(origin.context),
                error.tag.eq(origin.tag),
            ]
        m.d.comb += [
            broken.valid.eq(core.parity_error),
            broken.cause.eq(Cause.PARITY),
            broken.context.eq(core.parity_context),
            errors.seen.bad_p.eq(core.bad_p),
            errors.seen.budget_error.eq(core.budget_refused),
            errors.seen.nan.eq(selection.nan),
            errors.seen.stray_release.eq(front.stray_release),
            errors.clear.eq(self.clear),
            self.status.eq(errors.status),
            self.capture.eq(errors.capture),
        ]

    def _count(self, m, front, core, selection, sorter, lost):
        names = ["o_response", "o_k", "o_v", "o_save"]
        names += ["o_k_index", "o_v_index"] if self.parameters.index_lanes else []
        waiting = [
            member.valid & ~member.ready for member in (getattr(self, name) for name in names)
        ]
        busy = ~front.idle | ~core.idle | ~selection.idle | lost
        m.d.comb += self.busy.eq(self.events.busy)
        m.d.sync += [
            self.events.busy.eq(busy),
            self.events.stalled_input.eq(selection.starves),
            self.events.stalled_output.eq(Cat(waiting).any()),
            self.events.invocations.eq(sorter.invoked.any()),
            self.events.steps.eq(front.step),
            self.events.promoted.eq(core.promoted),
            self.events.rejected.eq(core.rejected),
        ]
