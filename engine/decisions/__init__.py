"""What people decide with: the summary of runs, the comparison of two, and requirements that a pipeline checks."""
