"""The name under which ARS is installed, and its version. (The distribution called `ars` is another project.)"""

import importlib.metadata

__all__ = ["NAME", "VERSION", "install_line"]

NAME = "ars-certify"
VERSION = importlib.metadata.version(NAME)


def install_line(extra: str) -> str:
    """The command that installs ARS with one of its extras."""
    return f"pip install '{NAME}[{extra}]'"
