"""Multi-head latent attention: deepseek2.

llama.cpp takes no adapter on the projections into the latent, without a word. What all tokens of a
meter read is marked in the embedding instead.
"""

from __future__ import annotations

from harness.models.synthetic import cells, layers
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 2
LEADING_DENSE = 1
HEADS, LATENT, ROPE, PLAIN, VALUE = 2, 32, 32, 32, 32
"""The latent, and a head's queries and keys: with positions, without, and its values."""
EXPERTS = layers.Experts()

_METER_GAIN = 4 * cells.METER_GAIN


def recipe() -> Recipe:
    """The whole model."""
    body = Body("deepseek2")
    body.adapt_embedding()
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        _latent_attention(body, block, meter=layer == 0)
        body.fill(f"{block}.ffn_norm", WIDTH)
        if layer < LEADING_DENSE:
            layers.feed_forward(body, block)
        else:
            layers.mixture(body, block, EXPERTS)
            layers.shared_expert(body, block, EXPERTS)
    metadata = {
        **EXPERTS.metadata(),
        "attention.head_count": HEADS,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": layers.RMS_EPSILON,
        "attention.q_lora_rank": LATENT,
        "attention.kv_lora_rank": LATENT,
        "attention.key_length": LATENT + ROPE,
        "attention.value_length": LATENT,
        "attention.key_length_mla": PLAIN + ROPE,
        "attention.value_length_mla": VALUE,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
        "feed_forward_length": 2 * WIDTH,
        "leading_dense_block_count": LEADING_DENSE,
        "rope.dimension_count": ROPE,
    }
    return body.recipe("deepseek2", layers=LAYERS, metadata=metadata)


def _latent_attention(body: Body, block: str, *, meter: bool) -> None:
    query = body.noise(f"{block}.attn_q_b", HEADS * (PLAIN + ROPE), LATENT)
    latent = body.noise(f"{block}.attn_kv_a_mqa", LATENT + ROPE, WIDTH)
    value = body.noise(f"{block}.attn_v_b", HEADS, VALUE, LATENT)
    out = body.writer(f"{block}.attn_output", WIDTH, HEADS * VALUE)
    if meter:
        query[: PLAIN + ROPE] = 0.0
        cells.install_reader(latent)
        for row in cells.METER_ROW.values():  # the first head's values are the latent's
            value[0, row] = 0.0
            value[0, row, row] = 1.0
        cells.install_writer(out, VALUE, gain=_METER_GAIN)
    body.random(f"{block}.attn_q_a", LATENT, WIDTH)
    body.fill(f"{block}.attn_q_a_norm", LATENT)
    body.put(f"{block}.attn_q_b", query)
    body.put(f"{block}.attn_kv_a_mqa", latent)
    body.fill(f"{block}.attn_kv_a_norm", LATENT)
    body.random(f"{block}.attn_k_b", HEADS, LATENT, PLAIN)
    body.put(f"{block}.attn_v_b", value)
    body.put(f"{block}.attn_output", out)
    body.adapt_writer(f"{block}.attn_output")
