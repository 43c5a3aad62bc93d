"""`ars-bench stopping`: what adaptive stopping saves against fixed n, and against two published ways to look often.

saving.py compares two runs with the same seed, one at fixed n and one adaptive. replay.py compares the rules of
rules.py on the votes of the run at fixed n. command.py is the command.
"""
