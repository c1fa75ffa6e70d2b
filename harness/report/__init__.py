"""Renderings of what was found: pure functions over ledger rows."""
