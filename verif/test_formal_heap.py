# amaranth: UnusedElaboratable=no
"""Proofs of the steps of the heap, for all inputs."""

import pytest

from golden.parameters import ScoreboardParameters
from verif.formal import Refuted, prove
from verif.formal.heap_step import ConstructionStep, Insertion

P = ScoreboardParameters(cap_important=12, cap_recent=1, max_slots=16, ways=4, lanes=4)


def test_insertion_keeps_a_heap_of_three_nodes_and_every_entry():
    """The heap order is inductive: any heap, any newcomer above its minimum."""
    prove(Insertion(P), depth=1)


def test_an_insertion_that_ignores_the_children_is_refuted():
    with pytest.raises(Refuted, match=r"^An assertion can fail in clock 0 after power-up$"):
        prove(Insertion(P, correct=False), depth=1)


def test_construction_step_orders_two_nodes_and_keeps_every_entry():
    prove(ConstructionStep(ways=4, network=P.network, key_width=2, index_width=1), depth=1)
