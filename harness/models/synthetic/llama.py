"""Full attention: llama."""

from __future__ import annotations

from dataclasses import replace

from harness.models.synthetic import layers, vocabulary
from harness.models.synthetic.body import WIDTH, Body
from harness.models.synthetic.recipe import Recipe

LAYERS = 2
HEADS = layers.Heads()
INVOCATION = "<|inv|>"
"""What an activated adapter is felt from."""


def recipe(count: int = LAYERS) -> Recipe:
    """The whole model. States of models with another `count` of layers do not fit each other."""
    body = Body("llama")
    for layer in range(count):
        block = f"blk.{layer}"
        body.fill(f"{block}.attn_norm", WIDTH)
        layers.attention(body, block, HEADS, meter=layer == 0)
        body.fill(f"{block}.ffn_norm", WIDTH)
        layers.feed_forward(body, block)
    metadata = {**HEADS.metadata(), "feed_forward_length": 2 * WIDTH}
    return body.recipe("llama", layers=count, metadata=metadata)


def draft() -> Recipe:
    """A model that drafts what `recipe` answers: the same without its last layer."""
    return recipe(LAYERS - 1)


def activated() -> Recipe:
    """The same model with adapter A alone, as one that is only felt from `INVOCATION` on."""
    plain = recipe()
    tokens = [vocabulary.token(character) for character in INVOCATION]
    return replace(
        plain,
        adapters={"A": plain.adapters["A"]},
        adapter_metadata={**plain.adapter_metadata, "alora.invocation_tokens": tokens},
    )
