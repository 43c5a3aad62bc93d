"""Training: classifiers and their noise generators, in PyTorch."""
