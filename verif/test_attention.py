"""Bit-exact attention against one operation at a time in scalars, and its stated bounds."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from golden import attention

LENGTHS = [*range(18), 31, 33, 64, 127]
INF, NAN = np.float32(np.inf), np.float32(np.nan)
LARGEST = np.finfo(np.float32).max


def bits(values):
    """Bit patterns, to compare signs of zero and NaN too."""
    values = np.asarray(values)
    return values.view({2: np.uint16, 4: np.uint32}[values.dtype.itemsize]).tolist()


def half(values):
    return np.array(values, np.float16)


def single(values):
    return np.array(values, np.float32)


def halves(rng, *shape):
    """Random fp16 of widely different sizes, zeros and subnormals among them."""
    return (rng.normal(size=shape) * 2.0 ** rng.integers(-20, 5, size=shape)).astype(np.float16)


def scalar_tree(values):
    while len(values) > 1:
        values = [values[i] + values[i + 1] for i in range(0, len(values), 2)]
    return values[0]


def scalar_dot(pairs):
    """Dot product as the specification words it, one addition at a time."""
    accumulator = np.float32(0)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(pairs), 16):
            products = [np.float32(a) * np.float32(b) for a, b in pairs[start : start + 16]]
            products += [np.float32(0)] * (16 - len(products))
            accumulator = accumulator + scalar_tree(products)
    return NAN if np.isnan(accumulator) else accumulator


def scalar_sum(terms):
    partials = [np.float32(0)] * 64
    for i, x in enumerate(terms):
        partials[i % 64] += x
    return scalar_tree(partials)


def scalar_softmax(accumulated, head_dim):
    c = np.float32(1 / np.sqrt(head_dim))
    s = [np.float32(x) * c for x in accumulated]
    s = [-INF if np.isnan(x) else min(x, LARGEST) for x in s]
    if all(x == -INF for x in s):
        return [np.float16(0)] * len(s)
    with np.errstate(over="ignore"):
        e = [attention.exp(np.array([x - max(s)], np.float32))[0] for x in s]
    r = np.float32(1) / scalar_sum(e)
    return [np.float16(x * r) for x in e]


@pytest.mark.parametrize("length", LENGTHS)
def test_dot_adds_in_the_specified_order(length):
    rng = np.random.default_rng(length)
    a, b = halves(rng, 50, length), halves(rng, 50, length)

    expected = [scalar_dot(list(zip(*pair, strict=True))) for pair in zip(a, b, strict=True)]

    assert bits(attention.dot(a, b)) == bits(expected)


def test_dot_adds_neighbours_first_then_tiles_in_increasing_order():
    one = np.ones(32, np.float16)
    big, small = np.float16(4096), np.float16(2.0**-13)
    inside = one * 0
    inside[:4] = big, small, small, -big  # (big + small) + (small - big)
    between = one * 0
    between[[0, 1, 16, 17]] = big, small, small, -big

    assert attention.dot(inside, one) == 0
    assert attention.dot(between, one) == 0
    assert attention.dot(inside[[0, 3, 1, 2]], one[:4]) == 2 * small


def test_products_are_exact():
    a, b = half([[2047], [2.0**-24], [65504]]), half([[2047], [2.0**-24], [65504]])

    assert attention.dot(a, b).tolist() == [2047.0**2, 2.0**-48, 65504.0**2]


@pytest.mark.parametrize(
    "a, b",
    [([np.inf], [0]), ([np.inf, np.inf], [1, -1]), ([np.nan], [1]), ([-np.nan], [1])],
)
def test_nan_results_are_the_one_quiet_nan(a, b):
    assert bits(attention.dot(half([a]), half([b]))) == [0x7FC00000]


def test_selected_dimensions_fill_tiles_without_gaps():
    rng = np.random.default_rng(0)
    q, k = halves(rng, 3, 64), halves(rng, 3, 5, 64)
    dims = np.array([rng.choice(64, 20, replace=False) for _ in range(3)])
    dims.sort(axis=-1)

    expected = [
        [scalar_dot([(q[h, d], k[h, t, d]) for d in dims[h]]) for t in range(5)] for h in range(3)
    ]

    assert bits(attention.scores(q, k, dims)) == bits(expected)


def test_query_heads_of_a_group_share_keys():
    rng = np.random.default_rng(0)
    q, k = halves(rng, 2, 3, 32), halves(rng, 2, 1, 7, 32)
    dims = np.sort(rng.permuted(np.tile(np.arange(32), (2, 3, 1)), axis=-1)[..., :9], axis=-1)

    together = attention.scores(q, k, dims)

    one_by_one = [
        [attention.scores(q[g, h], k[g, 0], dims[g, h]) for h in range(3)] for g in range(2)
    ]
    assert bits(together) == bits(one_by_one)
    assert bits(attention.scores(q, k)) == bits(attention.scores(q, k, np.arange(32)))


def check_exp(x):
    exact = np.exp(x.astype(np.float64))
    error = np.abs(attention.exp(x) - exact) / exact
    assert error.max() <= 2.5 * 2.0**-24


def whole_reduced_range(stride):
    """Every ``stride``-th fp32 from -2**-40 to -ln 2: all table entries, all remainders."""
    first, last = single([2.0**-40, np.log(2)]).view(np.uint32).tolist()
    for start in range(first, last + 1, stride << 20):
        numbers = np.arange(start, min(start + (stride << 20), last + 1), stride, dtype=np.uint32)
        yield -numbers.view(np.float32)


def test_exp_error_over_the_reduced_range():
    for x in whole_reduced_range(29):
        check_exp(x)


@pytest.mark.nightly
def test_exp_error_at_every_number_of_the_reduced_range():
    for x in whole_reduced_range(1):
        check_exp(x)


def test_exp_error_where_the_table_entry_changes():
    middle = (-(np.arange(8000) + 0.5) * np.log(2) / 64).astype(np.float32)
    around = middle.view(np.uint32)[:, np.newaxis] + np.arange(-20, 21).astype(np.uint32)

    check_exp(around.view(np.float32))


def test_exp_error_down_to_the_smallest_result():
    check_exp(-np.random.default_rng(0).uniform(0, 87.3, 200_000).astype(np.float32))


def test_exp_has_no_subnormal_results():
    x = single([-87.33, -87.4, -88, -100, -104, -1000, -LARGEST, -np.inf])

    result = attention.exp(x)

    assert result[0] >= np.finfo(np.float32).tiny
    assert bits(result[1:]) == [0] * 7


def test_exp_of_zero_is_one_and_nothing_is_above():
    tiny = -np.logspace(-45, 0, 10_000).astype(np.float32)

    assert attention.exp(single([0, -0.0])).tolist() == [1, 1]
    assert attention.exp(tiny).max() == 1


def test_exp_table_is_rounded_from_the_exact_powers():
    exact = [Decimal(2) ** (Decimal(j) / 64) for j in range(64)]
    errors = [abs(Decimal(float(t)) - e) for t, e in zip(attention.EXP_TABLE, exact, strict=True)]

    assert max(errors) < Decimal(2) ** -24


@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 129, 1000])
def test_ordered_sum_adds_in_the_specified_order(length):
    terms = np.random.default_rng(length).random((5, length)).astype(np.float32)

    assert bits(attention.ordered_sum(terms)) == bits([scalar_sum(row) for row in terms])


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 127, 128, 200])
@pytest.mark.parametrize("head_dim", [4, 64, 100, 128])
def test_softmax_follows_the_specification(tokens, head_dim):
    accumulated = (
        np.random.default_rng(tokens).normal(scale=20, size=(4, tokens)).astype(np.float32)
    )

    p, bad = attention.softmax(accumulated, head_dim)

    assert bits(p) == bits([scalar_softmax(row, head_dim) for row in accumulated])
    assert not bad.any()


def test_softmax_of_a_spread_over_30():
    p, _ = attention.softmax(single([[0, -31 * 8, -17 * 8, -16 * 8]]), 64)

    assert p[0, 0] == 1 and p[0, 1] == 0
    assert bits(p[0, 2:]) == [1, 2]  # exp(-17) and exp(-16) in units of 2**-24, subnormal


def test_softmax_of_one_and_of_no_token():
    assert attention.softmax(single([[-5]]), 64)[0].tolist() == [[1]]
    assert attention.softmax(np.zeros((3, 0), np.float32), 64)[0].shape == (3, 0)


@pytest.mark.parametrize("scores", [[NAN] * 3, [-INF] * 3, [NAN, -INF, NAN]])
def test_softmax_without_any_number_is_zero(scores):
    p, bad = attention.softmax(single([scores]), 64)

    assert bits(p) == [[0, 0, 0]]
    assert bad.tolist() == [True]


def test_softmax_of_all_masked_is_zero():
    p, bad = attention.softmax(single([[1, NAN, INF]]), 64, np.zeros(3, bool))

    assert bits(p) == [[0, 0, 0]]
    assert bad.tolist() == [False]


def test_masked_tokens_count_as_minus_infinity():
    accumulated = np.random.default_rng(0).normal(scale=9, size=(5, 70)).astype(np.float32)
    mask = np.random.default_rng(1).random((5, 70)) < 0.5
    masked = np.where(mask, accumulated, -INF)

    p, bad = attention.softmax(accumulated, 64, mask)

    assert bits(p) == bits([scalar_softmax(row, 64) for row in masked])
    assert not bad.any()


def test_bad_scores_count_as_lowest_and_largest_and_touch_their_row_only():
    good = np.random.default_rng(0).normal(scale=9, size=(3, 70)).astype(np.float32)
    touched = good.copy()
    touched[1, [3, 40]] = NAN, -INF
    touched[2, 7] = INF

    p, bad = attention.softmax(touched, 64)

    assert bits(p[0]) == bits(attention.softmax(good, 64)[0][0])
    assert bits(p[1]) == bits(
        scalar_softmax(np.where(np.isfinite(touched[1]), touched[1], -INF), 64)
    )
    assert p[2].tolist() == [float(i == 7) for i in range(70)]
    assert bad.tolist() == [False, True, True]


@given(
    st_numpy.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 70)),
        elements=st.one_of(
            st.floats(-1e4, 1e4, width=32), st.sampled_from([NAN, INF, -INF, LARGEST, -LARGEST])
        ),
    )
)
def test_softmax_of_anything_follows_the_specification(accumulated):
    p, bad = attention.softmax(accumulated, 64)

    assert bits(p) == bits([scalar_softmax(row, 64) for row in accumulated])
    assert bad.tolist() == (~np.isfinite(accumulated)).any(axis=-1).tolist()


def sparse_weights(rng, *shape):
    return np.where(rng.random(shape) < 0.4, 0, rng.random(shape)).astype(np.float16)


@pytest.mark.parametrize("tokens", [0, 1, 15, 16, 17, 33, 100])
def test_weighted_sum_skips_rows_of_weight_zero(tokens):
    rng = np.random.default_rng(tokens)
    p, v = sparse_weights(rng, 3, tokens), halves(rng, 3, tokens, 8)

    expected = [
        [
            scalar_dot([(w, row[d]) for w, row in zip(p[h], v[h], strict=True) if w])
            for d in range(8)
        ]
        for h in range(3)
    ]

    assert bits(attention.weighted_sum(p, v)) == bits(expected)


def test_bad_values_in_skipped_rows_do_not_arrive():
    p = half([[0, 0.5, 0, 0.5]])
    v = half([[[np.inf], [1], [np.nan], [3]]])

    assert attention.weighted_sum(p, v).tolist() == [[2]]


def test_query_heads_of_a_group_share_values():
    rng = np.random.default_rng(0)
    p, v = sparse_weights(rng, 2, 3, 40), halves(rng, 2, 1, 40, 8)

    together = attention.weighted_sum(p, v)

    one_by_one = [[attention.weighted_sum(p[g, h], v[g, 0]) for h in range(3)] for g in range(2)]
    assert bits(together) == bits(one_by_one)


def test_attention_is_close_to_exact_arithmetic():
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.normal(size=shape).astype(np.float16) for shape in [(9, 64), *[(9, 300, 64)] * 2]
    )
    exact = np.exp((k.astype(np.float64) @ q[..., np.newaxis])[..., 0] / 8)
    exact /= exact.sum(axis=-1, keepdims=True)

    p, _ = attention.softmax(attention.scores(q, k), 64)
    output = attention.weighted_sum(p, v)

    # Half an ulp of fp16 for P; rounding P alone moves the output by about that times |v|.
    assert np.abs(p - exact).max() <= 2.0**-11 * exact.max()
    assert np.abs(output - (exact[:, np.newaxis] @ v)[:, 0]).max() < 1e-3
