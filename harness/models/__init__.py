"""Models and adapters to drive a server with: generated ones, or a user's own."""
