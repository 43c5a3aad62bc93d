"""The documentation site, built once for all tests and all of pytest's workers."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site as `make docs` writes it. A warning is an error."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site").exists():
            subprocess.run(["make", "--silent", "tree"], cwd=REPOSITORY, check=True)
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder / "site"]
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
            built = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            assert built.stderr == ""
    return folder / "site"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from support.browser import open_browser

    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
