"""The engine: noise, votes, bounds and certificates."""
