"""Whether a directory is on a local disk: SQLite's write-ahead log needs shared memory."""

from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mounts")
_NETWORK: Final = frozenset({"afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "smb3", "smbfs"})
_BRIDGES: Final = ("blobfuse", "ceph", "gcsfuse", "gluster", "goofys", "juicefs", "mount", "rclone", "s3fs", "sshfs")


def is_on_shared_disk(path: str) -> bool:
    """Whether a path may be visible to other machines, too; False where the system has no mount table."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    kind, _, bridge = kind_of_disk(mounts, path).partition(".")
    return kind in _NETWORK or kind.startswith("nfs") or (kind == "fuse" and bridge.startswith(_BRIDGES))


def kind_of_disk(mounts: str, path: str) -> str:
    r"""The file system that a path is on.

    Args:
        mounts: lines of ``/proc/self/mounts``: device, directory (a space is ``\040``), type.
        path: absolute; it need not exist.

    Returns:
        "" when no line matches.
    """
    found = ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(" "), "", "", ""]
        directory = place.replace("\\040", " ").rstrip("/")
        if f"{path}/".startswith(f"{directory}/") and len(directory) >= len(found[0]):
            found = (directory, kind)  # the later of two mounts at one directory is visible
    return found[1]
