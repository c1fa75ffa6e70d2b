"""Renderings of what was found."""
