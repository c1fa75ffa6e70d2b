"""A full-attention model (architecture llama) with two adapters."""

from __future__ import annotations

import numpy as np

from harness.models.synthetic import cells
from harness.models.synthetic.recipe import Lora, Recipe, Tensors
from harness.models.synthetic.weights import noise

WIDTH, LAYERS, HEADS, HEAD_WIDTH, FEED_FORWARD = 64, 2, 4, 16, 128
RANK = 4


def recipe(layers: int = LAYERS) -> Recipe:
    """The whole model: about 470 kB, adapters about 15 kB each.

    States of models with another number of `layers` do not fit each other.
    """
    return Recipe(
        architecture="llama",
        context_length=65536,
        embedding_length=WIDTH,
        block_count=layers,
        integers={
            "llama.feed_forward_length": FEED_FORWARD,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": HEADS,
            "llama.attention.key_length": HEAD_WIDTH,
            "llama.attention.value_length": HEAD_WIDTH,
            "llama.rope.dimension_count": HEAD_WIDTH,
        },
        floats={"llama.attention.layer_norm_rms_epsilon": 1e-5},
        tensors=_tensors(layers),
        adapters={letter: _adapter(letter, layers) for letter in ("A", "B")},
        adapter_alpha=float(RANK),
    )


def _tensors(layers: int) -> Tensors:
    ones = np.ones(WIDTH, dtype=np.float32)
    tensors: Tensors = {
        "token_embd.weight": cells.embedding("dense/embedding", WIDTH),
        "output_norm.weight": ones,
        "output.weight": cells.output("dense/output", WIDTH),
    }
    for layer in range(layers):
        block, seed = f"blk.{layer}.", f"dense/{layer}/"
        width = HEADS * HEAD_WIDTH
        query = noise(seed + "query", width, WIDTH, exponent=-9)
        value = noise(seed + "value", width, WIDTH, exponent=-9)
        out = cells.writer(seed + "out", WIDTH, width)
        if layer == 0:
            cells.install_meter(query, value, out, HEAD_WIDTH)
        tensors |= {
            block + "attn_norm.weight": ones,
            block + "ffn_norm.weight": ones,
            block + "attn_q.weight": query,
            block + "attn_k.weight": noise(seed + "key", width, WIDTH, exponent=-9),
            block + "attn_v.weight": value,
            block + "attn_output.weight": out,
            block + "ffn_gate.weight": noise(seed + "gate", FEED_FORWARD, WIDTH, exponent=-9),
            block + "ffn_up.weight": noise(seed + "up", FEED_FORWARD, WIDTH, exponent=-9),
            block + "ffn_down.weight": cells.writer(seed + "down", WIDTH, FEED_FORWARD),
        }
    return tensors


def _adapter(letter: str, layers: int) -> Lora:
    lora: Lora = {}
    for layer in range(layers):
        for tensor, inputs, outputs in (
            ("attn_q", WIDTH, HEADS * HEAD_WIDTH),
            ("attn_v", WIDTH, HEADS * HEAD_WIDTH),
            ("ffn_down", FEED_FORWARD, WIDTH),
        ):
            seed = f"dense/{layer}/{tensor}/{letter}/"
            down = noise(seed + "down", RANK, inputs, exponent=-8)
            up = noise(seed + "up", outputs, RANK, exponent=-8)
            if tensor == "ffn_down":
                up[: cells.RESERVED] = 0.0
            elif layer == 0 and tensor == "attn_q":
                up[:HEAD_WIDTH] = 0.0  # the meter's query stays 0
            elif layer == 0:
                cells.install_adapter(letter, down, up)
            lora[f"blk.{layer}.{tensor}.weight"] = (down, up)
    return lora
