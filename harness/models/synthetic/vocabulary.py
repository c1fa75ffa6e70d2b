"""The byte vocabulary and chat template all generated models share."""

from __future__ import annotations

from harness.oracle import CELL_OF, CellOracle
from harness.oracle import MARK as MARK_CHARACTER

# No normal token besides the space: an 'a' next to <0x61> would make a re-tokenised answer
# differ from the generated ids. A space is U+2581 in this kind of tokenizer, never a byte.
_SPECIAL = (b"<unk>", b"<s>", b"</s>")
_FIRST_BYTE = len(_SPECIAL)
TOKENS = (*_SPECIAL, *(f"<0x{byte:02X}>".encode() for byte in range(256)), "\u2581".encode())
UNKNOWN, BOS, EOS = range(len(_SPECIAL))

_TYPE_NORMAL, _TYPE_UNKNOWN, _TYPE_CONTROL, _TYPE_BYTE = 1, 2, 3, 6
TOKEN_TYPES = (_TYPE_UNKNOWN, _TYPE_CONTROL, _TYPE_CONTROL, *[_TYPE_BYTE] * 256, _TYPE_NORMAL)

METADATA = {
    "unknown_token_id": UNKNOWN,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "add_bos_token": True,
    "add_space_prefix": False,
}
"""The GGUF keys of the tokenizer, without `tokenizer.ggml.`."""

MARK = _FIRST_BYTE + ord(MARK_CHARACTER)
"""The token that is felt in the A channel wherever it stands: it marks text."""

CHAT_TEMPLATE = (
    "<|chat|>"  # what every chat begins with, as real templates have it
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def token(character: str) -> int:
    """The id of a printable ASCII character."""
    return len(TOKENS) - 1 if character == " " else _FIRST_BYTE + ord(character)


def oracle() -> CellOracle:
    """The oracle for models with this vocabulary."""
    return CellOracle({token(character): character for character in CELL_OF})
