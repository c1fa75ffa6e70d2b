"""Generated models: exact, tiny, the same bytes on every machine."""
