"""`ars-bench reproduce`: the paper's experiments, from training to the page with their tables."""
