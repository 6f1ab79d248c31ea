"""Clients of Kafka in a forked process: their threads are left in the parent."""

import ctypes


def never_destroyed(client: object) -> None:
    """Keep an object for as long as this process lives: destroying a client waits for its threads, which are not here.

    Not even at the end of Python, when everything else is destroyed.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
