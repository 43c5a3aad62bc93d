"""Timings of single components: the sampler, the engine around a model, the noise generator."""
