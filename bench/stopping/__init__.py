"""`ars-bench stopping`: what adaptive stopping saves."""
