"""Builds of llama-server: where they come from and what they are."""
