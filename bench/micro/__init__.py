"""Timings of single parts: the sampler, the engine around a model, the noise generator."""
