"""Computing out of sight of coverage."""

import sys
from contextlib import contextmanager


@contextmanager
def untraced():
    """Trace no lines: under coverage, long computations in Python take about three times as long. Also a decorator."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)
