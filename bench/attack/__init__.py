"""Attacks on the certificates of a run: an upper bound beside every lower one."""
