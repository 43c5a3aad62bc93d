"""`ars-bench paper`: the paper's tables for the models at hand, beside the paper's own figures."""
