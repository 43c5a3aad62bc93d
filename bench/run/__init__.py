"""`ars-bench run`: seconds per sample and draws a second, in the manner of hyperfine."""
