"""Commands of `llama-harness`, a module a group: what they take, and what they print."""
