"""Training: classifiers and their noise, in PyTorch."""
