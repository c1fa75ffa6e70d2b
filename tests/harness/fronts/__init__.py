"""Fronts: programs that pass for a llama-server binary, with real llama-servers behind them."""
