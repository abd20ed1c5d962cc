"""Tests of :mod:`golden.llm` that need the default model's weights in the cache."""

import numpy as np
import pytest

from golden.llm import gguf_file, weights
from golden.llm.capture import capture
from golden.llm.llama import Llama
from golden.llm.tokenizer import Tokenizer
from golden.llm.trace import Trace
from verif.llama_reference import TEXT, compare, log_probabilities, negative_log_likelihood

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def loaded():
    pytest.importorskip("gguf", reason="needs the package gguf")
    pytest.importorskip("tokenizers", reason="needs the package tokenizers")
    path = weights.find_weights()
    if path is None:
        pytest.skip("needs the default model's weights; `kvsmith trace` downloads them")
    return gguf_file.read(path)


@pytest.fixture(scope="module")
def model(loaded):
    return Llama(loaded.config, loaded.weights)


@pytest.fixture(scope="module")
def tokens(loaded):
    return Tokenizer(loaded.metadata).encode(TEXT.read_text())


def test_tokenizer_of_a_known_text(loaded, tokens):
    tokenizer = Tokenizer(loaded.metadata)
    assert tokenizer.decode(tokens) == TEXT.read_text()
    assert len(tokens) == 10710
    assert tokens[:8] == [504, 7152, 282, 260, 1797, 1918, 282, 2493]


def test_likelihood_of_a_known_text(model, tokens):
    """1.6845 per token; half-split rotation instead of interleaved pairs gives 4.44."""
    logs = log_probabilities(model, tokens[:256], 248)
    assert negative_log_likelihood(logs, tokens[:256]) == pytest.approx(1.6845, abs=2e-3)


def test_embedded_trace_is_this_models(model, tokens):
    """The command of ``golden/data/README.md``, shorter: earlier tokens never see later ones."""
    embedded = Trace.load()
    assert embedded.tokens.tolist() == tokens[:320]
    again = capture(
        model, tokens, prompt=40, steps=1, layers=embedded.layers.tolist(), kv_heads=[0, 1, 2]
    )
    for name in ("k", "v"):
        one, other = (getattr(trace, name)[:, :, :41] for trace in (embedded, again))
        # The BLAS orders its additions as it likes, which moves a rounding to fp16 now and then.
        np.testing.assert_allclose(
            one.view(np.float16).astype(float), other.view(np.float16), rtol=2e-3, atol=2e-3
        )


@pytest.mark.nightly
def test_forward_pass_is_llama_cpps(loaded):
    pytest.importorskip("xllamacpp", reason="needs the package xllamacpp (llama.cpp as a wheel)")
    found = compare(tokens=128, prompt=100, stride=16)
    assert found["fp32"]["max"] < 2e-3
    assert found["fp32"]["mean_kl"] < 1e-6
    assert found["quantised"]["mean_kl"] < 0.03
