"""Masks of the selection sequencer: indices of selected groups become bits."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SelectionParameters
from rtl.sorting.one_hot import any_of, choose

__all__ = ["SelectionMasks", "selected_layout"]


def _lanes(parameters: SelectionParameters) -> data.StructLayout:
    index = max(1, (parameters.head_dim - 1).bit_length())
    return data.StructLayout({
        "chosen": 1,
        "enable": parameters.ways,
        "indices": data.ArrayLayout(index, parameters.ways),
    })


def selected_layout(parameters: SelectionParameters) -> data.StructLayout:
    """Both results of one invocation, with the entries that are selected."""
    return data.StructLayout({
        "context": range(max(2, parameters.vectors_in_flight)),
        "last": 1,
        "upper": _lanes(parameters),
        "lower": _lanes(parameters),
    })


class SelectionMasks(wiring.Component):
    """One mask per context, in which each selected index sets its bit.

    One group per clock: an invocation of which both results are selected holds the next one that
    selects back for one clock.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i : stream of :func:`selected_layout`
        Results of which at least one is ``chosen``.
    start, start_context
        A mask becomes empty.
    finish, finish_context
        The ``last`` selection of a context is in its mask, from the next clock on.
    head, mask
        Mask of context ``head``.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        context = range(max(2, p.vectors_in_flight))
        super().__init__({
            "i": In(stream.Signature(selected_layout(p))),
            "start": In(1),
            "start_context": In(context),
            "finish": Out(1),
            "finish_context": Out(context),
            "head": In(context),
            "mask": Out(p.head_dim),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        masks = [
            Signal(p.head_dim, name=f"mask_{c}", reset_less=True)
            for c in range(p.vectors_in_flight)
        ]
        held = Signal(selected_layout(p), reset_less=True)
        upper, lower = Signal(), Signal()
        lanes = Signal.like(held.upper)
        indices = Signal(p.head_dim)

        m.d.comb += [
            self.i.ready.eq(~(upper & lower)),
            lanes.eq(Mux(upper, held.upper, held.lower)),
            indices.eq(
                any_of(
                    Mux(enable, Const(1, 1) << index, 0)[: p.head_dim]
                    for enable, index in zip(lanes.enable, lanes.indices, strict=True)
                )
            ),
            self.finish.eq((upper ^ lower) & held.last),
            self.finish_context.eq(held.context),
            self.mask.eq(choose(Cat(self.head == c for c in range(len(masks))), masks)),
        ]

        m.d.sync += [upper.eq(0), lower.eq(upper & lower)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                held.eq(self.i.payload),
                upper.eq(self.i.payload.upper.chosen),
                lower.eq(self.i.payload.lower.chosen),
            ]
        for c, mask in enumerate(masks):
            with m.If((upper | lower) & (held.context == c)):
                m.d.sync += mask.eq(mask | indices)
            with m.If(self.start & (self.start_context == c)):
                m.d.sync += mask.eq(0)

        return m
