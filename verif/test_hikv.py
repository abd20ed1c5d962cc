"""Golden HiKV against the specification's words in scalars, and its stated properties."""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden import attention, traffic
from golden.hikv import (
    Context,
    add_rows,
    prefill_scores,
    select_dimensions,
    select_slots,
    slots_of_kept,
    split_budget,
    stage_one_budget,
    stage_two_budget,
)
from golden.hikv_head import Head, Heads
from golden.llm.trace import Trace
from golden.numerics import score_dtype
from golden.parameters import (
    GROUPINGS,
    SCORE_FORMATS,
    SLOT_ORDERS,
    UNSELECTED,
    HikvParameters,
)
from verif.hikv_reference import ReferenceHead, reference_prefill_scores, reference_slots
from verif.test_attention import bits

CAPACITIES = (1, 2, 3, 5, 16, 17)
BAD = (np.nan, np.inf, -np.inf)
#: Equal numbers, zeros of both signs, a subnormal and the largest among them.
FEW = (0.0, -0.0, 1.0, -1.0, 2.0, 6e-8, 65504.0)


@dataclasses.dataclass
class Stimulus:
    """A prompt and decode steps of one KV head."""

    scores: np.ndarray
    k: np.ndarray
    v: np.ndarray
    q: np.ndarray

    @property
    def prompt(self):
        return len(self.scores)


def number(score, score_format):
    """Score as a number; a ``ufix`` code as it is."""
    return int(score) if score_format == "ufix" else score.view(f"f{score.itemsize}")


def pattern(score, score_format):
    dtype = score_dtype(score_format)
    return dtype(score) if score_format == "ufix" else score.view(dtype)


def make_stimulus(rng, parameters, *, prompt, steps, queries, kind):
    """Random fp16, or a few values with many ties, or bad numbers among them."""

    def values(*shape):
        if kind == "ordinary":
            return rng.normal(size=shape).astype(np.float16)
        few = rng.choice(FEW, shape)
        if kind == "bad":
            few = np.where(rng.random(shape) < 0.1, rng.choice(BAD, shape), few)
        return few.astype(np.float16)

    dtype = score_dtype(parameters.score_format)
    if parameters.score_format == "ufix":
        scores = rng.integers(0, 5, prompt).astype(dtype) << 18
    else:
        choice = rng.choice([0.0, 0.25, 0.5, 1.0, 3.0], prompt)
        scores = choice.astype(f"f{dtype().itemsize}").view(dtype)
    head_dim = parameters.head_dim
    tokens = prompt + steps
    return Stimulus(
        scores, values(tokens, head_dim), values(tokens, head_dim), values(steps, queries, head_dim)
    )


def check_conservation(context):
    """Every occupied slot is in exactly one bank."""
    banks = [*context.recent, *context.important]
    assert sorted(banks) == list(range(context.occupied))
    assert len(context.recent) <= context.cap_recent
    assert len(context.important) <= context.cap_important


def as_reference(step):
    """Turn a step into the form of the reference's answer."""
    return {
        "slot": step.admission.slot,
        "evicted": step.admission.evicted,
        "promoted": step.admission.promoted,
        "dimensions": [np.flatnonzero(mask).tolist() for mask in step.dimensions],
        "p": step.p.view(np.float16).astype(float).tolist(),
        "rows": [np.flatnonzero(mask).tolist() for mask in step.rows],
        "output": bits(step.output),
    }


def compare_step(context, answer, expected, reference, score_format):
    expected["output"] = bits(np.array(expected["output"], np.float32))
    assert answer == expected
    check_conservation(context)
    assert list(context.recent) == reference.recent
    assert context.important == set(reference.important)
    scores = [number(context.scores[slot], score_format) for slot in range(context.occupied)]
    assert scores == [reference.score[slot] for slot in range(context.occupied)]


def compare(parameters, stimulus, turns=1):
    """Run golden and reference over the stimulus, step by step."""
    head, reference = Head(parameters), ReferenceHead(parameters)
    score_format = parameters.score_format
    numbers = [number(score, score_format) for score in stimulus.scores]
    for _ in range(turns):
        prompt = (stimulus.k[: stimulus.prompt], stimulus.v[: stimulus.prompt])
        kept = head.initialise(stimulus.scores, *prompt)
        assert kept.tolist() == reference.initialise(numbers, *prompt)
        for index, q in enumerate(stimulus.q):
            k, v = (x[stimulus.prompt + index] for x in (stimulus.k, stimulus.v))
            with np.errstate(all="ignore"):
                expected = reference.step(q, k, v)
            answer = as_reference(head.step(q, k, v))
            compare_step(head.context, answer, expected, reference, score_format)


@st.composite
def cases(draw):
    head_dim = draw(st.sampled_from([4, 5, 8]))
    budgets = st.one_of(st.integers(0, head_dim), st.just(head_dim))
    parameters = HikvParameters(
        head_dim=head_dim,
        cap_recent=draw(st.sampled_from(CAPACITIES)),
        cap_important=draw(st.sampled_from((0, *CAPACITIES))),
        b_iik=draw(budgets),
        b_iiv=draw(budgets),
        grouping=draw(st.sampled_from(GROUPINGS)),
        unselected=draw(st.sampled_from(UNSELECTED)),
        slot_order=draw(st.sampled_from(SLOT_ORDERS)),
        score_format=draw(st.sampled_from(SCORE_FORMATS)),
    )
    stimulus = make_stimulus(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        parameters,
        prompt=draw(st.integers(0, 40)),
        steps=draw(st.integers(1, 12)),
        queries=draw(st.integers(1, 3)),
        kind=draw(st.sampled_from(["ordinary", "few", "bad"])),
    )
    return parameters, stimulus


@settings(max_examples=300)
@given(cases(), st.sampled_from([1, 1, 2]))
def test_steps_are_the_references(case, turns):
    parameters, stimulus = case
    compare(parameters, stimulus, turns)


@pytest.mark.parametrize("cap_important", [0, 1, 2, 16, 17])
@pytest.mark.parametrize("cap_recent", [1, 2, 16, 17])
def test_long_decoding_is_the_references(cap_recent, cap_important):
    """From an empty cache, over the hand-over from empty to full banks."""
    parameters = HikvParameters(
        head_dim=4, cap_recent=cap_recent, cap_important=cap_important, b_iik=3, b_iiv=3,
        unselected="mean",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    stimulus = make_stimulus(rng, parameters, prompt=0, steps=60, queries=2, kind="ordinary")

    compare(parameters, stimulus)


def test_real_steps_are_the_references():
    trace = Trace.load()
    parameters = HikvParameters(
        head_dim=64, cap_recent=40, cap_important=41, b_iik=24, b_iiv=20, unselected="mean"
    )
    k, v, q = (getattr(trace, name)[1, 2].view(np.float16) for name in "kvq")
    stimulus = Stimulus(trace.initial_scores(40)[1, 2], k, v, q.swapaxes(0, 1)[:5])

    compare(parameters, stimulus)


def half_of(trace, layer):
    """Q, K and V of a layer as fp16: (heads, queries, steps, head_dim), (heads, tokens, ...)."""
    return (getattr(trace, name)[layer].view(np.float16) for name in "qkv")


def start(heads, trace, layer, windows):
    """Take over the trace's prompt."""
    _, k, v = half_of(trace, layer)
    scores = [
        trace.initial_scores(window)[layer, head] for head, window in enumerate(windows)
    ]
    return heads.initialise(scores, k[:, : trace.prompt], v[:, : trace.prompt])


@pytest.mark.parametrize("unselected", UNSELECTED)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_heads_side_by_side_are_as_if_alone(grouping, unselected):
    """Of different capacities, so that they differ in slots, and unions differ in size."""
    trace = Trace.load()
    capacities = [(16, 17), (100, 29), (1, 0)]
    parameters = HikvParameters(
        head_dim=64, b_iik=24, b_iiv=20, grouping=grouping, unselected=unselected
    )
    heads = Heads(parameters, capacities)
    alone = [Heads(parameters, [pair]) for pair in capacities]
    windows = [recent for recent, _ in capacities]
    q, k, v = half_of(trace, 0)

    kept = start(heads, trace, 0, windows)
    for head, one in enumerate(alone):
        scores = [trace.initial_scores(windows[head])[0, head]]
        (own,) = one.initialise(scores, k[head : head + 1, :256], v[head : head + 1, :256])
        assert kept[head].tolist() == own.tolist()
    for step in range(8):
        token = trace.prompt + step
        together = heads.step(q[:, :, step], k[:, token], v[:, token])
        for head, one in enumerate(alone):
            mine = slice(head, head + 1)
            (expected,) = one.step(q[mine, :, step], k[mine, token], v[mine, token])
            assert as_reference(together[head]) == as_reference(expected)
            assert together[head].traffic == expected.traffic
            assert heads.contexts[head].scores.tolist() == one.contexts[0].scores.tolist()


def test_bad_numbers_touch_their_head_only_and_are_flagged():
    rng = np.random.default_rng(0)
    parameters = HikvParameters(head_dim=8, cap_recent=3, cap_important=3, b_iik=4, b_iiv=4)
    clean, touched = (Heads(parameters, [(3, 3)] * 2) for _ in range(2))
    for step in range(20):
        q, k, v = (rng.normal(size=s).astype(np.float16) for s in [(2, 2, 8), (2, 8), (2, 8)])
        expected = clean.step(q, k, v)[0]
        k[1, step % 8], v[1, 0] = BAD[step % 3], BAD[step % 3]
        answer, other = touched.step(q, k, v)
        assert as_reference(answer) == as_reference(expected)
        assert (answer.flagged, other.flagged) == (False, True)


@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("value", BAD)
def test_one_bad_number_is_flagged(where, value):
    head = Head(HikvParameters(head_dim=4, cap_recent=2, cap_important=0, b_iik=1, b_iiv=1))
    arrays = {"q": np.ones((1, 4), np.float16), "k": np.ones(4, np.float16)}
    arrays["v"] = arrays["k"].copy()
    assert not head.step(**arrays).flagged
    arrays[where][..., 3] = value

    assert head.step(**arrays).flagged


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_identity_with_the_full_cache(layer):
    """While the tokens fit and everything is selected; slots are positions if contiguous."""
    trace = Trace.load()
    parameters = HikvParameters(
        head_dim=64, cap_recent=256, cap_important=64, b_iik=64, b_iiv=64, slot_order="contiguous"
    )
    heads = Heads(parameters, [(256, 64)] * 3)
    q, k, v = half_of(trace, layer)
    start(heads, trace, layer, [256] * 3)

    for step in range(trace.steps):
        length = trace.length(step)
        answers = heads.step(q[:, :, step], k[:, length - 1], v[:, length - 1])
        p = trace.p[layer, :, :, step, :length]
        full = attention.weighted_sum(p.view(np.float16), v[:, np.newaxis, :length])
        assert [answer.p.tolist() for answer in answers] == p.tolist()
        # A skipped row may be another head's: it fills a place there, but adds nothing.
        alone = [
            attention.weighted_sum(p[h].view(np.float16), v[h, :length], p[h].any(axis=0))
            for h in range(3)
        ]
        assert bits([answer.output for answer in answers]) == bits(alone)
        assert np.abs(np.stack([answer.output for answer in answers]) - full).max() < 1e-5
        assert not any(answer.admission.evicted for answer in answers)


def test_interleaved_slots_keep_the_same_tokens():
    trace = Trace.load()
    orders = {}
    for slot_order in SLOT_ORDERS:
        parameters = HikvParameters(head_dim=64, b_iik=64, b_iiv=64, slot_order=slot_order)
        heads = Heads(parameters, [(64, 64)] * 3)
        orders[slot_order] = [kept.tolist() for kept in start(heads, trace, 1, [64] * 3)]
        context = heads.contexts[0]
        assert len(context.recent) == len(context.important) == 64
        recent = slots_of_kept(128, 64, slot_order)[64:]
        assert list(context.recent) == recent.tolist()
    assert orders["interleaved"] == orders["contiguous"]


@pytest.mark.parametrize("cap_recent", [1, 2, 5])
def test_score_is_the_sum_over_the_recent_window(cap_recent):
    """Exactly the ``cap_recent`` steps from the token's own on; weights whose sums are exact."""
    context = Context(cap_recent, 3)
    rng = np.random.default_rng(cap_recent)
    received: dict[int, list[float]] = {}
    final: dict[int, float] = {}
    for token in range(30):
        slot = context.admit().slot
        final.pop(slot, None)
        received[slot] = []
        p = rng.integers(0, 9, context.occupied).astype(np.float16)
        context.accumulate(p[np.newaxis].view(np.uint16))
        for other, weight in enumerate(p.tolist()):
            received[other].append(weight)
            if len(received[other]) == cap_recent:
                final[other] = sum(received[other])
        leaving_next = context.recent[0] if token + 1 >= cap_recent else None
        for other, total in final.items():
            frozen = other in context.important or other == leaving_next
            assert not frozen or context.scores[other : other + 1].view(np.float16)[0] == total


def test_fp16_score_stops_growing_at_2048():
    one = np.ones((1, 1), np.float16).view(np.uint16)
    ends = {}
    for score_format in SCORE_FORMATS:
        context = Context(1, 0, score_format)
        context.admit()
        for _ in range(3000):
            context.accumulate(one)
        ends[score_format] = number(context.scores[0], score_format)

    assert ends == {"fp16": 2048.0, "fp32": 3000.0, "ufix": 2**31 - 2}


def test_of_equal_scores_the_higher_slot_leaves():
    """Slots 0, 1 important, slot 2 oldest recent, all scores 0: it is the minimum itself."""
    context = Context(2, 2)
    admissions = [context.admit() for _ in range(6)]

    assert [a.slot for a in admissions] == [0, 1, 2, 3, 2, 3]
    assert [a.promoted for a in admissions] == [False, False, True, True, False, False]
    assert [a.evicted for a in admissions] == [False, False, False, False, True, True]


def test_without_important_bank_the_window_slides():
    context = Context(3, 0)

    assert [context.admit().slot for _ in range(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert list(context.recent) == [2, 0, 1] and not context.important


@pytest.mark.parametrize("grouping, expected", [
    ("per_query", [[0, 3], [1, 3]]), ("per_group", [[1, 3]] * 2), ("union", [[0, 1, 3]] * 2),
])  # fmt: skip
def test_groupings_of_two_heads(grouping, expected):
    q = np.array([[-5, 3, 0, 4], [0, -3, 1, 9]], np.float16).view(np.uint16)

    masks = select_dimensions(q, 2, grouping)

    assert [np.flatnonzero(mask).tolist() for mask in masks] == expected


def test_sum_of_a_group_begins_at_zero_and_skips_nan():
    q = np.array([[np.nan, 1, 0], [3, 1, 0], [0, 0, np.nan]], np.float16).view(np.uint16)

    assert select_dimensions(q, 1, "per_group").tolist() == [[True, False, False]] * 3


def test_sum_of_a_group_is_fp16_in_order_of_the_heads():
    """2048 + 1 + 1 is 2048 in this order, 2050 in the other, which would tie and win."""
    q = np.array([[2048, 2050], [1, 0], [1, 0]], np.float16).view(np.uint16)

    assert select_dimensions(q, 1, "per_group").tolist() == [[False, True]] * 3


@pytest.mark.parametrize("unselected", UNSELECTED)
def test_selected_mass_is_summed_in_order_of_the_slots(unselected):
    """Slot 0 weighs 1, the others 2**-24, which fp32 loses one by one, but not if added first."""
    steps = 40
    k, v = np.zeros((steps, 4), np.float16), np.full((steps, 4), 2.0**15, np.float16)
    k[0, 0], v[0] = 33.2, 0
    stimulus = Stimulus(np.zeros(0, np.uint16), k, v, np.ones((steps, 1, 4), np.float16))
    parameters = HikvParameters(
        head_dim=4, cap_recent=steps, b_iik=4, b_iiv=4, unselected=unselected
    )

    compare(parameters, stimulus)


def test_slots_of_weight_zero_are_left_out():
    p = np.array([[0.5, 0, 0, 0.5], [0, 0, 1, 0]], np.float16).view(np.uint16)

    chosen = {grouping: select_slots(p, 3, 4, grouping) for grouping in GROUPINGS}

    assert chosen["per_query"].astype(int).tolist() == [[1, 0, 0, 1], [0, 0, 1, 0]]
    assert chosen["union"].astype(int).tolist() == [[1, 0, 1, 1]] * 2
    assert chosen["per_group"].astype(int).tolist() == [[1, 0, 1, 1]] * 2


def test_zero_times_infinity_does_not_arise():
    p = np.array([[0.5, 0.5], [0, 1]], np.float16)
    v = np.array([[np.inf], [2]], np.float16)

    output = attention.weighted_sum(p, v, np.array([True, True]))

    assert output.tolist() == [[np.inf], [2]]


def test_rows_fill_tiles_whatever_they_weigh():
    """Weight 0 in place 1 moves the second large row to another pair of the tree."""
    p = np.array([[1, 0, 1, 1]], np.float16)
    v = np.array([[2.0**14], [1], [2.0**-10], [2.0**-10]], np.float16)

    assert attention.weighted_sum(p, v, np.ones(4, bool)).tolist() == [[2.0**14 + 2.0**-9]]
    assert attention.weighted_sum(p, v).tolist() == [[2.0**14]]
    only = np.array([False, False, True, True])
    assert attention.weighted_sum(p, v, only).tolist() == [[2.0**-9]]


@pytest.mark.parametrize("slot_order", SLOT_ORDERS)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 17])
def test_slots_of_kept_tokens(count, slot_order):
    slots = slots_of_kept(count, 4, slot_order).tolist()

    assert slots == reference_slots(count, 4, slot_order)
    assert sorted(slots) == list(range(count))


@pytest.mark.parametrize("score_format", SCORE_FORMATS)
@pytest.mark.parametrize("cap_recent", [1, 3, 9, 20])
def test_prefill_scores_are_the_references(cap_recent, score_format):
    rng = np.random.default_rng(cap_recent)
    p = np.tril(rng.random((2, 9, 9))).astype(np.float16)
    p[1, 5, 2], p[0, 8, 8] = np.nan, -1

    scores = prefill_scores(p.view(np.uint16), cap_recent, score_format)

    expected = reference_prefill_scores(p, cap_recent, score_format)
    assert [number(score, score_format) for score in scores] == expected


def test_scores_of_heads_with_different_windows_in_blocks_of_rows():
    rng = np.random.default_rng(0)
    p = np.tril(rng.random((3, 2, 12, 12))).astype(np.float16).view(np.uint16)
    windows = np.array([1, 4, 12])
    scores = np.zeros((3, 12), np.uint16)

    for first, last in ((0, 5), (5, 6), (6, 12)):
        add_rows(scores, p[:, :, first:last, :last], first, windows)

    assert scores.tolist() == [
        prefill_scores(p[head], window).tolist() for head, window in enumerate(windows.tolist())
    ]


def test_stage_one_budget_is_exact():
    assert stage_one_budget(2048, 2) == 1024
    assert stage_one_budget(4096, "2.86") == 2 * (409600 // 572) == 1432
    assert stage_one_budget(2048, 3, granularity=16) == 32 * (2048 // 96) == 672
    assert stage_one_budget(1, 4) == 2
    assert stage_one_budget(3, 1, granularity=4) == 8
    # In binary floating point 33 / (2 * 1.1) is below 15.
    assert stage_one_budget(33, "1.1") == 30


def test_stage_two_budget_rounds_half_to_even():
    assert stage_two_budget(128, "3.5") == 37
    assert stage_two_budget(64, "2.5") == 26
    assert [stage_two_budget(n, 2) for n in (5, 7)] == [2, 4]
    assert stage_two_budget(64, Fraction(1)) == 64


@pytest.mark.parametrize("tokens, expected", [(1, (1, 0)), (2, (1, 1)), (9, (4, 5))])
def test_split_of_a_heads_budget(tokens, expected):
    assert split_budget(tokens) == expected


def test_bad_input_is_refused_in_a_sentence():
    inexact: Any = 2.5

    def message(kind, action):
        with pytest.raises(kind) as error:
            action()
        return str(error.value)

    assert message(TypeError, lambda: stage_two_budget(64, inexact)) == (
        "Ratio must be exact: a Fraction, an integer or a text, not 2.5"
    )
    assert message(ValueError, lambda: stage_one_budget(64, "0.5")) == (
        "Ratio must be at least 1, not 0.5"
    )
    assert message(ValueError, lambda: stage_one_budget(0, 1)) == (
        "Prompt and granularity must be at least 1, not 0 and 1"
    )
    assert message(ValueError, lambda: Context(0, 1)) == "Cap recent must be at least 1, not 0"
    assert message(ValueError, lambda: Context(1, -1)) == (
        "Cap important must be at least 0, not -1"
    )
    assert message(ValueError, lambda: HikvParameters(head_dim=64, b_iik=65)) == (
        "B iik must be at most head dim (64), not 65"
    )
    context = Context(2, 2)
    context.admit()
    for length in (0, 2):
        p = np.zeros((1, length), np.uint16)
        assert message(ValueError, lambda p=p: context.accumulate(p)) == (
            f"P must have one weight for each of the 1 occupied slots, not {length}"
        )
    assert message(TypeError, lambda: context.initialise(np.zeros(3), 64)) == (
        "Scores must be uint16 (fp16 bits), not float64"
    )


def moved_bytes(dimensions, rows, newcomer, reads_evicted, burst):
    """Bytes as a set of burst numbers of each matrix, element by element."""
    head_dim, occupied = dimensions.shape[1], rows.shape[1]
    line = 10 * burst * -(-2 * occupied // burst)

    def k_burst(dimension, slot):
        return (dimension * line + 2 * slot) // burst

    def v_bursts(slot):
        return {(2 * head_dim * slot + byte) // burst for byte in range(2 * head_dim)}

    k_read = {
        k_burst(d, s)
        for d in range(head_dim)
        for s in range(occupied)
        if dimensions[:, d].any() and s != newcomer
    }
    v_read = [v_bursts(s) for s in range(occupied) if rows[:, s].any() and s != newcomer]
    written = {k_burst(d, newcomer) for d in range(head_dim)}
    return {
        "k_read": burst * len(k_read),
        "v_read": burst * len(set().union(*v_read)),
        "written": burst * (len(written) + len(v_bursts(newcomer))),
        "metadata": burst * len(v_bursts(newcomer)) * reads_evicted,
    }


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([4, 5, 16, 33]), st.sampled_from([2, 8, 32, 64]),
    st.integers(1, 70), st.booleans(),
)  # fmt: skip
def test_traffic_counts_every_byte(seed, head_dim, burst, occupied, reads_evicted):
    rng = np.random.default_rng(seed)
    dimensions, rows = rng.random((2, head_dim)) < 0.3, rng.random((2, occupied)) < 0.2
    newcomer = int(rng.integers(occupied))

    counted = traffic.step(
        dimensions, rows, newcomer, tokens=occupied + 3, reads_evicted=reads_evicted, burst=burst
    )

    own = {name: getattr(counted, name) for name in ("k_read", "v_read", "written", "metadata")}
    assert own == moved_bytes(dimensions, rows, newcomer, reads_evicted, burst)
    row, before = 2 * head_dim, occupied + 2
    assert counted.full_read == 2 * burst * -(-before * row // burst)
    last = {byte // burst for byte in range(before * row, (before + 1) * row)}
    assert counted.full_written == 2 * burst * len(last)
    assert counted.total == sum(own.values())


@pytest.mark.parametrize("unselected", UNSELECTED)
def test_traffic_of_a_step(unselected):
    """Sliding window of 4 with everything selected: 3 stored tokens, and the evicted V row."""
    parameters = HikvParameters(
        head_dim=8, cap_recent=4, cap_important=0, b_iik=3, b_iiv=8, unselected=unselected
    )
    head = Head(parameters)
    one = np.ones(8, np.float16)
    last = [head.step(one[np.newaxis], one, one) for _ in range(5)][-1]

    evicted_row = 16 if unselected == "mean" else 0
    assert last.traffic == traffic.Traffic(3 * 3 * 2, 3 * 16, 32, evicted_row, 2 * 4 * 16, 32)
    assert last.traffic.share == (18 + 48 + 32 + evicted_row) / 160


def test_full_size_traffic_and_context():
    """512 slots of 128 elements, 64-byte bursts: K's small writes are an eighth of the reads."""
    dimensions, rows = np.arange(128)[np.newaxis] < 32, np.arange(512)[np.newaxis] % 4 == 0
    counted = traffic.step(dimensions, rows, 511, tokens=512, burst=64)

    assert 128 * 64 / (counted.k_read + counted.v_read) == pytest.approx(0.125, abs=1e-3)
    assert traffic.context_bytes(512, 512) == 5 * 1024
