"""What a user may not do. Tests often run as root, who may do everything."""

import os
from contextlib import contextmanager


@contextmanager
def unprivileged():
    """For a while, another user, who has no rights of root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
