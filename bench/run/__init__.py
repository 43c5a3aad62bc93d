"""`ars-bench run`: measures seconds per sample and draws per second, in the manner of hyperfine."""
