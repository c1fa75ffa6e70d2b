"""Real llama-server processes: how they are started, known, read and ended."""
