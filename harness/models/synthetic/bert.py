"""Encoders, which keep nothing of what they read: bert for embeddings, and for reranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import gguf

from harness.models.synthetic import layers, vocabulary
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe, Value

LAYERS, HEADS = 2, 2
HIDDEN = 2 * WIDTH
CONTEXT = 512
_EPSILON = 1e-5


def embedder() -> Recipe:
    """A model for embeddings: the mean over all tokens."""
    return _recipe(_encoder("embedding"), {"pooling_type": int(gguf.PoolingType.MEAN)})


def reranker() -> Recipe:
    """A model that says how well a text answers a query."""
    body = _encoder("rerank")
    _linear(body, "cls", WIDTH, WIDTH)
    _linear(body, "cls.output", 1, WIDTH)
    return _recipe(body, {"pooling_type": int(gguf.PoolingType.RANK)})


def _encoder(name: str) -> Body:
    body = Body(name, output_norm=None)
    body.random("token_types", 2, WIDTH)
    body.random("position_embd", CONTEXT, WIDTH)
    layers.norm(body, "token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for tensor in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _linear(body, f"{block}.{tensor}", WIDTH, WIDTH)
        layers.norm(body, f"{block}.attn_output_norm")
        _linear(body, f"{block}.ffn_up", HIDDEN, WIDTH)
        _linear(body, f"{block}.ffn_down", WIDTH, HIDDEN)
        layers.norm(body, f"{block}.layer_output_norm")
        body.adapt(f"{block}.attn_v")
    return body


def _recipe(body: Body, metadata: Mapping[str, Value]) -> Recipe:
    always: dict[str, Value] = {
        "context_length": CONTEXT,
        "attention.head_count": HEADS,
        "attention.layer_norm_epsilon": _EPSILON,
        "attention.causal": False,
        "feed_forward_length": HIDDEN,
    }
    recipe = body.recipe("bert", layers=LAYERS, metadata={**always, **metadata})
    tokenizer: dict[str, Value] = {
        **recipe.tokenizer_metadata,
        "token_type_count": 2,
        "cls_token_id": vocabulary.BOS,
        "seperator_token_id": vocabulary.EOS,  # the specification's spelling
        "add_eos_token": True,
    }
    return replace(recipe, tokenizer_metadata=tokenizer, chat_template=None)


def _linear(body: Body, tensor: str, outputs: int, inputs: int) -> None:
    body.random(tensor, outputs, inputs)
    body.fill(f"{tensor}.bias", outputs, value=0.0)
