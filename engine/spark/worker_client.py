"""Has a process of Spark's Python workers forked by ``worker_server``, and stands for it as long as it lives.

    python -I -S worker_client.py ADDRESS -m MODULE ARGUMENTS...

It runs without ``site``, so nothing but a few modules of the standard library is there. Where no server answers, or it
refuses, Python starts in its place with the same arguments.
"""

import json
import os
import socket
import struct
import sys

_READY, _GO = b"1", b"2"
_PATIENCE_S = 3.0  # Spark waits ten seconds for some of its processes


def forked(address: str, module: str, arguments: list[str]) -> socket.socket | None:
    """The connection to the server that forks the process; None: it does not, and will not.

    The server forks when it is asked a second time, so never after this client has lost patience.
    """
    body = {"module": module, "arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    text = json.dumps(body).encode()
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(_PATIENCE_S)
    try:
        client.connect(address)
        socket.send_fds(client, [struct.pack("!I", len(text))], [0, 1, 2])
        client.sendall(text)
        if client.recv(1) == _READY:
            client.settimeout(None)
            client.sendall(_GO)
            return client
    except OSError:
        pass
    client.close()
    return None


def main() -> None:
    """Wait for the exit code of the process; without a server, become the process."""
    address, _, module, *arguments = sys.argv[1:]
    client = forked(address, module, arguments)
    if client is None:
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
    code = client.recv(1)
    os._exit(code[0] if code else 1)  # without an answer the server has ended, and Spark is about to


if __name__ == "__main__":
    main()
