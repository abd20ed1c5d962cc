"""Masks of the selection sequencer: indices of selected groups become bits."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import SelectionParameters
from rtl.sorting.one_hot import any_of, choose

__all__ = ["SelectionMasks", "selected_layout"]


def selected_layout(parameters: SelectionParameters) -> data.StructLayout:
    """One group of a vector, and which of its entries are selected."""
    return data.StructLayout({
        "context": range(max(2, parameters.vectors_in_flight)),
        "last": 1,
        "enable": parameters.ways,
        "indices": data.ArrayLayout(parameters.ris().index_width, parameters.ways),
    })


class SelectionMasks(wiring.Component):
    """One mask per context, in which each selected index sets its bit.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    en, selected
        A group of selected entries, one per clock.
    start, start_context
        A mask becomes empty.
    finish, finish_context
        The ``last`` group of a context is in its mask, from the next clock on.
    head, mask
        Mask of context ``head``.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        context = range(max(2, p.vectors_in_flight))
        super().__init__({
            "en": In(1),
            "selected": In(selected_layout(p)),
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
        valid_1 = Signal()
        selected_1 = Signal(selected_layout(p), reset_less=True)
        bits_1 = Signal(p.head_dim)

        m.d.comb += [
            bits_1.eq(
                any_of(
                    Mux(enable, Const(1, 1) << index, 0)[: p.head_dim]
                    for enable, index in zip(selected_1.enable, selected_1.indices, strict=True)
                )
            ),
            self.finish.eq(valid_1 & selected_1.last),
            self.finish_context.eq(selected_1.context),
            self.mask.eq(choose(Cat(self.head == c for c in range(len(masks))), masks)),
        ]

        m.d.sync += valid_1.eq(self.en)
        with m.If(self.en):
            m.d.sync += selected_1.eq(self.selected)
        for c, mask in enumerate(masks):
            with m.If(valid_1 & (selected_1.context == c)):
                m.d.sync += mask.eq(mask | bits_1)
            with m.If(self.start & (self.start_context == c)):
                m.d.sync += mask.eq(0)

        return m
