"""Sort keys, strict order, score formats and their additions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import numerics

ALL16 = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
NUMBERS16 = ALL16[~np.isnan(ALL16.view(np.float16))]
NON_NEGATIVE16 = np.arange(0x7C01, dtype=np.uint16)

EDGES32 = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000,
        0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
    ],
    dtype=np.uint32,
)  # fmt: skip
NANS32 = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], dtype=np.uint32)


def order16(magnitude):
    """All fp16 numbers from the lowest to the highest, -0 before +0."""
    values = NUMBERS16.view(np.float16).astype(np.float64)
    sign = np.signbit(values)
    if magnitude:
        return NUMBERS16[np.lexsort((NUMBERS16, np.abs(values)))]
    return NUMBERS16[np.lexsort((~sign, values))]


def test_keys_of_all_fp16_numbers_ascend_with_the_values():
    keys = numerics.sort_keys(order16(magnitude=False))

    assert (np.diff(keys.astype(np.int64)) == 1).all()
    assert (keys[0], keys[-1]) == (0x03FF, 0xFC00)


def test_magnitude_keys_of_all_fp16_numbers_ascend_with_the_absolute_values():
    keys = numerics.sort_keys(order16(magnitude=True), magnitude=True)

    assert (np.diff(keys.astype(np.int64).reshape(-1, 2), axis=0) == 1).all()
    assert (keys[0::2] == keys[1::2]).all()
    assert (keys[0], keys[-1]) == (0x8000, 0xFC00)


@pytest.mark.parametrize("magnitude", [False, True])
def test_every_fp16_nan_has_the_one_key(magnitude):
    nans = ALL16[np.isnan(ALL16.view(np.float16))]

    assert (numerics.sort_keys(nans, magnitude=magnitude) == numerics.NAN_KEY).all()


@pytest.mark.parametrize("magnitude", [False, True])
def test_no_fp16_value_has_the_key_of_empty_or_blocked(magnitude):
    keys = numerics.sort_keys(ALL16, magnitude=magnitude)

    assert not np.isin(keys, [numerics.EMPTY, numerics.blocked(16)]).any()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=50))
def test_fp32_keys_are_in_the_order_of_the_values(values):
    numbers = np.array(values, np.float32)
    keys = numerics.sort_keys(numbers.view(np.uint32))

    order = np.lexsort((~np.signbit(numbers), numbers))
    assert (np.diff(keys[order].astype(np.int64)) >= 0).all()
    same = np.equal.outer(numbers.view(np.uint32), numbers.view(np.uint32))
    assert (np.equal.outer(keys, keys) == same).all()


def test_fp32_keys_at_the_edges():
    keys = numerics.sort_keys(EDGES32)

    assert [hex(key) for key in keys] == [
        "0x80000000", "0x7fffffff", "0x80000001", "0x7ffffffe", "0x807fffff", "0x80800000",
        "0xbf800000", "0x407fffff", "0xff7fffff", "0x800000", "0xff800000", "0x7fffff",
    ]  # fmt: skip
    assert (numerics.sort_keys(NANS32) == numerics.NAN_KEY).all()
    assert numerics.blocked(32) == 0xFFFFFFFF


def test_fp32_magnitude_clears_the_sign():
    keys = numerics.sort_keys(EDGES32, magnitude=True)

    assert (keys == (EDGES32 & 0x7FFFFFFF | 0x80000000)).all()


@pytest.mark.parametrize("dtype", [np.int16, np.uint64, np.float16])
def test_keys_are_made_of_bit_patterns_only(dtype):
    with pytest.raises(TypeError, match=f"^Bits must be uint16 or uint32, not {np.dtype(dtype)}$"):
        numerics.sort_keys(np.zeros(1, dtype))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_of_equal_keys_the_lower_index_ranks_higher(keys, random):
    indices = list(range(len(keys)))
    random.shuffle(indices)
    expected = sorted(range(len(keys)), key=lambda i: (-keys[i], indices[i]))

    order = numerics.rank(np.array(keys, np.uint16), np.array(indices))

    assert order.tolist() == expected


def test_rank_works_along_the_last_axis():
    keys = np.array([[1, 5, 5], [9, 0, 3]], np.uint16)

    assert numerics.rank(keys, np.array([[7, 2, 1], [0, 1, 2]])).tolist() == [[2, 1, 0], [0, 2, 1]]


BAD_P = np.array([0x7C01, 0x7E00, 0xFE00, 0xFFFF, 0x8001, 0xBC00, 0xFC00], np.uint16)


@pytest.mark.parametrize(
    "score_format, dtype", [("fp16", np.uint16), ("fp32", np.uint32), ("ufix", np.uint32)]
)
def test_bad_p_adds_nothing_and_is_told(score_format, dtype):
    scores = np.full(len(BAD_P), 0x1234, dtype)

    total, bad = numerics.accumulate(scores, BAD_P, score_format)

    assert (total == scores).all() and total.dtype == dtype
    assert bad.all()


@pytest.mark.parametrize(
    "score_format, dtype", [("fp16", np.uint16), ("fp32", np.uint32), ("ufix", np.uint32)]
)
def test_negative_zero_counts_as_zero(score_format, dtype):
    scores = np.array([0, 0x1234], dtype)

    total, bad = numerics.accumulate(scores, np.full(2, 0x8000, np.uint16), score_format)

    assert (total == scores).all()
    assert not bad.any()


def test_which_of_all_p_are_bad():
    values = ALL16.view(np.float16)

    assert (numerics.is_bad_addend(ALL16) == (np.isnan(values) | (values < 0))).all()


def integer_sum16(a, b):
    """fp16 sum of non-negative bit patterns in exact integers of 2**-24, rounded by hand."""

    def exact(bits):
        exponent, mantissa = int(bits) >> 10, int(bits) & 0x3FF
        return mantissa if exponent == 0 else (mantissa | 0x400) << (exponent - 1)

    if max(a, b) >= 0x7C00:
        return 0x7C00
    total = exact(a) + exact(b)
    shift = max(total.bit_length() - 11, 0)
    quotient, rest = total >> shift, total & ((1 << shift) - 1)
    half = 1 << shift >> 1
    quotient += shift > 0 and (rest > half or (rest == half and quotient & 1))
    bits = quotient if shift == 0 and quotient < 0x400 else (shift << 10) + quotient
    return min(bits, 0x7C00)


EDGES16 = [
    0x0000, 0x0001, 0x0002, 0x03FF, 0x0400, 0x0401, 0x07FF, 0x0800, 0x3BFF, 0x3C00, 0x3C01,
    0x4000, 0x7800, 0x7BFE, 0x7BFF, 0x7C00,
]  # fmt: skip
non_negative = st.one_of(st.sampled_from(EDGES16), st.integers(0, 0x7C00))


@given(st.lists(st.tuples(non_negative, non_negative), min_size=1, max_size=100))
def test_fp16_sums_are_rounded_to_nearest_even(pairs):
    scores, p = np.array(pairs, np.uint16).T

    total, _ = numerics.accumulate(scores.copy(), p.copy())

    assert total.tolist() == [integer_sum16(*pair) for pair in pairs]


def test_fp16_sum_loses_addends_below_half_an_ulp():
    two, small, half_ulp = np.array([0x4000, 0x13FF, 0x1400], np.uint16)[:, np.newaxis]

    assert numerics.accumulate(two, small)[0] == two
    assert numerics.accumulate(two, half_ulp)[0] == two, "a tie goes to even"
    assert numerics.accumulate(two + np.uint16(1), half_ulp)[0] == two + 2


def test_fp16_sum_overflows_to_infinity():
    largest = np.array([0x7BFF], np.uint16)

    assert numerics.accumulate(largest, largest)[0] == 0x7C00


def test_fp32_score_takes_fp16_addends_exactly():
    p = NON_NEGATIVE16
    total, bad = numerics.accumulate(np.zeros(len(p), np.uint32), p, "fp32")

    assert (total.view(np.float32) == p.view(np.float16)).all()
    assert not bad.any()


def test_fp32_sum_is_rounded_to_nearest_even():
    scores = np.array([0x4B800000, 0x4B800001], np.uint32)  # 2**24 and the next, ulp 2
    one = np.full(2, 0x3C00, np.uint16)

    total, _ = numerics.accumulate(scores, one, "fp32")

    assert total.tolist() == [0x4B800000, 0x4B800002]


@pytest.mark.parametrize("int_bits, frac_bits", [(10, 21), (1, 1), (1, 24), (16, 15), (7, 24)])
def test_ufix_codes_of_all_p_are_rounded_to_nearest_even(int_bits, frac_bits):
    p = NON_NEGATIVE16
    # An fp16 is a multiple of 2**-24: round in integers.
    units = np.ldexp(p[:-1].view(np.float16).astype(np.float64), 24).astype(np.int64)
    shift = 24 - frac_bits
    quotient, rest = units >> shift, units & ((1 << shift) - 1)
    half = (1 << shift) / 2
    up = (shift > 0) & ((rest > half) | ((rest == half) & (quotient % 2 == 1)))
    limit = 2 ** (int_bits + frac_bits) - 2
    expected = np.minimum(quotient + up, limit)

    codes = numerics.quantise_ufix(p, int_bits=int_bits, frac_bits=frac_bits)

    assert (codes[:-1] == expected).all()
    assert codes[-1] == limit, "infinity saturates"


@pytest.mark.parametrize("int_bits, frac_bits", [(10, 21), (1, 1), (7, 24)])
def test_ufix_sum_saturates_below_the_reserved_code(int_bits, frac_bits):
    limit = numerics.ufix_limit(int_bits, frac_bits)
    scores = np.array([limit - 1, limit, limit, 0], np.uint32)
    smallest = int(np.float16(2.0**-frac_bits).view(np.uint16))
    p = np.array([smallest, smallest, 0x7C00, 0x7C00], np.uint16)

    total, bad = numerics.accumulate(scores, p, "ufix", int_bits=int_bits, frac_bits=frac_bits)

    assert total.tolist() == [limit] * 4
    assert limit == 2 ** (int_bits + frac_bits) - 2
    assert not bad.any()


@given(st.lists(st.tuples(st.integers(0, 2**31 - 2), st.integers(0, 0x7C00)), min_size=1))
def test_ufix_sums_are_exact_up_to_the_limit(pairs):
    scores = np.array([score for score, _ in pairs], np.uint32)
    p = np.array([weight for _, weight in pairs], np.uint16)
    codes = numerics.quantise_ufix(p).astype(object)

    total, _ = numerics.accumulate(scores, p, "ufix")

    assert total.tolist() == np.minimum(scores.astype(object) + codes, 2**31 - 2).tolist()
