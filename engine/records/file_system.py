"""What the file system of a store can do.

SQLite's write-ahead log needs memory that all processes share. The file systems of clusters do not share memory between
computers, and there a lock on the whole store would exclude SQLite's own locks on parts of it: the kernel makes both of
the same kind. So a store on such a file system has a rollback journal, and its lock is on a file beside it.
"""

import errno
import mmap
import os
import sqlite3
import tempfile
from pathlib import Path

__all__ = ["find_kind", "place_of_lock", "set_journal"]

# As /proc/self/mountinfo names them.
NETWORK = {
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "afs", "panfs", "pvfs2", "wekafs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "virtiofs"),
}


def find_kind(path: Path) -> str | None:
    """The kind of the file system that a file is on, or would be; None if this system does not say."""
    folder, best, kind = os.path.realpath(path.parent), "", None
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return None
    for line in mounts.splitlines():
        place, _, rest = line.partition(" - ")
        point = place.split()[4].replace("\\040", " ")
        if (folder == point or folder.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, rest.split()[0]
    return kind


def place_of_lock(path: Path) -> Path:
    """The file whose lock keeps other writers out of a store."""
    return path.with_name(f"{path.name}.lock") if find_kind(path) in NETWORK else path


def set_journal(database: sqlite3.Connection, path: Path) -> str | None:
    """Have the store keep a write-ahead log, so that readers never wait; or, where there can be none, a rollback
    journal. Returns what the user should know then."""
    kind = find_kind(path)
    if kind not in NETWORK and _shares_memory(path.parent):
        database.execute("PRAGMA journal_mode = WAL")
        # A killed process loses no commit; only a power failure can lose the last ones.
        database.execute("PRAGMA synchronous = NORMAL")
        return None
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute("PRAGMA synchronous = FULL")
    return (
        f"{path} is on a file system without shared memory ({kind}): it keeps a rollback journal instead of a "
        "write-ahead log, and writers on other computers are kept out only if locks reach them (docs/cluster.md)"
    )


def _shares_memory(folder: Path) -> bool:
    """Whether a file in a folder can be mapped as shared memory. SQLite finds out only after it has marked the store
    for a log, which then cannot be taken back."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
    except OSError as error:
        return error.errno not in (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
    return True
