"""HiKV as a cache policy of a model: every layer and KV head, prompts, turns, budgets per head."""

import dataclasses

import numpy as np
import pytest

from golden.benchmarks.hikv import Recall, decode, log_probabilities, trace_row
from golden.hikv import prefill_scores
from golden.hikv_head import Heads
from golden.llm import gguf_file, weights
from golden.llm.capture import attention_weights
from golden.llm.hikv_cache import HikvCache, uniform_capacities
from golden.llm.llama import FullCache, Llama
from golden.llm.tokenizer import Tokenizer
from golden.llm.trace import EMBEDDED, Trace
from golden.parameters import HikvParameters
from golden.traffic import Traffic
from verif.test_attention import bits
from verif.test_llm import CONFIG, random_weights

PARAMETERS = HikvParameters(
    head_dim=CONFIG.head_dim, cap_recent=5, cap_important=4, b_iik=5, b_iiv=4, unselected="mean"
)
PROMPT, STEPS = 20, 12


def random_qkv(tokens, seed=0):
    """Q, K and V of one layer, as a model gives them."""
    rng = np.random.default_rng(seed)
    sizes = (CONFIG.heads, CONFIG.kv_heads, CONFIG.kv_heads)
    return [rng.normal(size=(n, tokens, CONFIG.head_dim)).astype(np.float32) for n in sizes]


def part(qkv, first, last):
    return [x[:, first:last] for x in qkv]


def prompted(parameters=PARAMETERS, capacities=None, rows=PROMPT, **options):
    """Build a cache that has seen the prompt in every layer, and the layers' Q, K and V."""
    cache = HikvCache(CONFIG, parameters, capacities, **options)
    layers = [random_qkv(PROMPT + STEPS, layer) for layer in range(CONFIG.layers)]
    for first in range(0, PROMPT, rows):
        for layer, qkv in enumerate(layers):
            cache(layer, *part(qkv, first, min(first + rows, PROMPT)))
    cache.start_decoding()
    return cache, layers


def dense_weights(q, k):
    """Causal attention of the prompt, (kv_heads, group, tokens, tokens), in double precision."""
    grouped = q.reshape(CONFIG.kv_heads, -1, *q.shape[1:]).astype(float)
    scores = grouped @ k.swapaxes(1, 2)[:, np.newaxis] / np.sqrt(CONFIG.head_dim)
    e = np.where(np.tri(q.shape[1], dtype=bool), np.exp(scores), 0)
    return e / e.sum(axis=-1, keepdims=True)


def test_every_layer_and_head_decodes_as_golden_hikv():
    """Capacities differ by layer and head; the scores come from dense attention in blocks."""
    capacities = np.array([[[5, 4], [2, 9]], [[3, 4], [30, 3]]])
    cache, layers = prompted(capacities=capacities, rows=7)

    for layer, (q, k, v) in enumerate(layers):
        p = dense_weights(q[:, :PROMPT], k[:, :PROMPT]).astype(np.float16)
        heads = Heads(PARAMETERS, capacities[layer].tolist())
        half_k, half_v = k.astype(np.float16), v.astype(np.float16)
        half_q = q.astype(np.float16).reshape(CONFIG.kv_heads, -1, *q.shape[1:])
        scores = [
            prefill_scores(p[head].view(np.uint16), int(capacities[layer, head, 0]))
            for head in range(CONFIG.kv_heads)
        ]
        heads.initialise(scores, half_k[:, :PROMPT], half_v[:, :PROMPT])
        for token in range(PROMPT, PROMPT + STEPS):
            steps = heads.step(half_q[:, :, token], half_k[:, token], half_v[:, token])
            answer = cache(layer, *part((q, k, v), token, token + 1))
            expected = np.concatenate([step.output for step in steps])[:, np.newaxis]
            assert bits(answer) == bits(expected)
        for mine, other in zip(cache.contexts(layer), heads.contexts, strict=True):
            assert (mine.recent, mine.important) == (other.recent, other.important)
            assert mine.scores.tolist() == other.scores.tolist()


def test_prompt_scores_are_close_to_the_hardwares():
    """Of the exact arithmetic on rounded Q and K; fp32 on the unrounded differs in last places."""
    q, k, _ = random_qkv(PROMPT)
    half_q, half_k = (x.astype(np.float16).view(np.uint16) for x in (q, k))
    p = dense_weights(q, k)[0].astype(np.float16)

    ours = prefill_scores(p.view(np.uint16), 5).view(np.float16)
    (exact_p,) = attention_weights(half_q[: CONFIG.group], half_k[0], 0)
    exact = prefill_scores(exact_p, 5).view(np.float16)

    np.testing.assert_allclose(ours.astype(float), exact.astype(float), rtol=4e-3)


def test_tokens_in_one_call_are_as_many_steps():
    together, layers = prompted()
    one_by_one, _ = prompted()

    for layer, qkv in enumerate(layers):
        answer = together(layer, *part(qkv, PROMPT, PROMPT + STEPS))
        steps = [
            one_by_one(layer, *part(qkv, token, token + 1))
            for token in range(PROMPT, PROMPT + STEPS)
        ]
        assert bits(answer) == bits(np.concatenate(steps, axis=1))
    assert together.traffic == one_by_one.traffic != Traffic()


def test_another_turn_begins_with_the_whole_history():
    """Evicted tokens come back: like a cache that saw the longer prompt at once.

    A prompt that is begun and given up leaves nothing.
    """
    cache, layers = prompted()
    for layer, qkv in enumerate(layers):
        cache(layer, *part(qkv, PROMPT, PROMPT + 4))
    for _ in range(2):
        cache.start_prompt()
        cache(0, *part(layers[1], 0, 3))
    cache.start_prompt()
    fresh = HikvCache(CONFIG, PARAMETERS)
    for layer, qkv in enumerate(layers):
        for hook in (cache, fresh):
            hook(layer, *part(qkv, 0, PROMPT + 4))
    cache.start_decoding()
    fresh.start_decoding()

    for layer, qkv in enumerate(layers):
        last = part(qkv, PROMPT + 4, PROMPT + STEPS)
        assert bits(cache(layer, *last)) == bits(fresh(layer, *last))
    with pytest.raises(RuntimeError, match="^Decoding has begun already; start_prompt"):
        cache.start_decoding()


def test_without_a_prompt_decoding_begins_empty():
    cache = HikvCache(CONFIG, PARAMETERS)
    cache.start_decoding()
    q, k, v = random_qkv(1)

    answer = cache(0, q, k, v)

    half = v.astype(np.float16).astype(np.float32)
    assert bits(answer) == bits(np.repeat(half, CONFIG.group, axis=0))


def test_model_with_room_for_everything_is_the_full_cache():
    """Within what rounding Q, K, V and P to fp16 costs."""
    model = Llama(CONFIG, random_weights())
    everything = dataclasses.replace(
        PARAMETERS, cap_recent=20, cap_important=20, b_iik=8, b_iiv=8, unselected="drop"
    )
    tokens = [3, 5, 258, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]
    full, hikv = FullCache(CONFIG), HikvCache(CONFIG, everything)
    for cache in (full, hikv):
        list(model.prefill(tokens[:8], cache, rows=3))
    hikv.start_decoding()

    expected, answer = (decode(model, tokens[8:], 8, cache) for cache in (full, hikv))

    assert np.abs(expected - answer).max() < 2e-2
    assert np.abs(expected - answer).max() > 0


def test_traffic_is_the_sum_over_layers_heads_and_steps():
    seen = []
    cache, layers = prompted(observer=lambda layer, steps: seen.append((layer, steps)))
    for layer, qkv in enumerate(layers):
        cache(layer, *part(qkv, PROMPT, PROMPT + STEPS))

    assert [layer for layer, _ in seen] == [0] * STEPS + [1] * STEPS
    moved = [step.traffic for _, steps in seen for step in steps]
    assert len(moved) == CONFIG.layers * CONFIG.kv_heads * STEPS
    assert cache.traffic == sum(moved, Traffic())
    row = 2 * 2 * CONFIG.head_dim
    rows = sum(range(PROMPT, PROMPT + STEPS)) * CONFIG.layers * CONFIG.kv_heads
    assert cache.traffic.full_read == row * rows


@pytest.mark.parametrize("resident, swapped", [(None, 0), (4, 0), (3, 2), (1, 4)])
def test_contexts_that_do_not_fit_are_swapped_in_every_step(resident, swapped):
    """Of 4 contexts; one is a ring row, a row of scores and a heap row, 64 bytes each."""
    capacities = np.array([[[32, 0], [32, 0]], [[20, 12], [20, 12]]])
    cache, layers = prompted(
        dataclasses.replace(PARAMETERS, unselected="drop"), capacities, resident=resident
    )
    for layer, qkv in enumerate(layers):
        cache(layer, *part(qkv, PROMPT, PROMPT + STEPS))

    sizes = [128, 128, 192, 192][4 - swapped :]
    assert cache.traffic.metadata == 2 * sum(sizes) * STEPS


def test_a_bad_number_is_flagged_where_it_is_and_for_good():
    cache, layers = prompted()
    q, k, v = part(layers[1], PROMPT, PROMPT + 1)
    bad_q = q.copy()
    bad_q[-1, 0, 3] = 1e6  # infinite in fp16

    cache(1, bad_q, k, v)
    cache(1, q, k, v)

    assert cache.flagged.tolist() == [[False, False], [False, True]]


def test_budgets_per_head_are_split():
    capacities = np.array([[9, 1], [2, 7]])

    cache = HikvCache(CONFIG, PARAMETERS, capacities)

    assert cache.capacities.tolist() == [[[4, 5], [1, 0]], [[1, 1], [3, 4]]]
    assert cache.contexts(1)[1].cap_important == 4
    assert uniform_capacities(CONFIG, 3, 2).tolist() == [[[3, 2]] * 2] * 2


def test_what_does_not_fit_the_model_is_refused():
    with pytest.raises(ValueError) as error:
        HikvCache(CONFIG, dataclasses.replace(PARAMETERS, head_dim=16))
    assert str(error.value) == "Head dim must be the model's, 8, not 16"
    with pytest.raises(ValueError) as error:
        HikvCache(CONFIG, PARAMETERS, resident=0)
    assert str(error.value) == "Resident must be at least 1, not 0"
    with pytest.raises(ValueError) as error:
        HikvCache(CONFIG, PARAMETERS, np.ones((2, 3), int))
    assert str(error.value) == (
        "Capacities must have shape (2, 2), tokens per KV head, or (2, 2, 2), recent and important"
        " ones, not (2, 3)"
    )


def test_recall_of_a_known_vector():
    """Chunks of 2 keep 8 and 1 of [8 4 | 1 2]; the global set is 8 and 4."""
    p = np.array([[8, 4, 0.5, 1]], np.float16).view(np.uint16)
    recall = Recall(b_iiv=1, head_dim=2)
    recall._add(p)

    assert (recall.by_count, recall.by_mass) == (0.5, 9 / 12)


def test_interleaved_slots_keep_more_of_the_global_set():
    trace = Trace.load()
    found = {}
    for slot_order in ("interleaved", "contiguous"):
        parameters = HikvParameters(
            head_dim=64, cap_recent=128, cap_important=128, b_iik=32, b_iiv=32,
            slot_order=slot_order,
        )  # fmt: skip
        found[slot_order] = trace_row(trace, parameters)[1].by_count

    assert found["interleaved"] > 0.95
    assert found["contiguous"] < 0.90


@pytest.mark.model
def test_real_model_with_room_for_everything_agrees_with_the_full_cache():
    pytest.importorskip("gguf", reason="needs the package gguf")
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    path = weights.find_weights()
    if path is None:
        pytest.skip("needs the default model's weights; `kvsmith trace` downloads them")
    file = gguf_file.read(path)
    model = Llama(file.config, file.weights)
    text = (EMBEDDED.parent / "us_constitution.txt").read_text()
    tokens = Tokenizer(file.metadata).encode(text)[:144]
    parameters = HikvParameters(head_dim=64, cap_recent=80, cap_important=64, b_iik=64, b_iiv=64)
    full, hikv = FullCache(file.config), HikvCache(file.config, parameters)
    for cache in (full, hikv):
        list(model.prefill(tokens[:128], cache))
    hikv.start_decoding()

    expected, answer = (decode(model, tokens[128:], 128, cache) for cache in (full, hikv))

    assert (np.exp(expected) * (expected - answer)).sum(axis=-1).max() < 1e-4
    assert expected.argmax(axis=-1).tolist() == answer.argmax(axis=-1).tolist()
    assert not hikv.flagged.any()


def test_log_probabilities_of_large_logits():
    assert log_probabilities(np.array([[1e4, 1e4]], np.float32)).tolist() == [
        [pytest.approx(-np.log(2))] * 2
    ]
