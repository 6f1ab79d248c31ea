"""Where a broker of this machine listens, and the login that it asks clients for: one user, with a password in a file.

The file is its owner's alone, as is the broker's own file of properties, which has the password, too. There is no TLS:
who reads the network between the machines reads the password. It keeps out other users of this machine, and of others.
"""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

HERE: Final = "127.0.0.1"
USER: Final = "fluvial"
_PASSWORD_FILE: Final = "password"
_FILE: Final = "ports.json"
_LISTENERS: Final = """\
controller.quorum.voters=1@{here}:{controller_port}
listeners={protocol}://{host}:{port},CONTROLLER://{here}:{controller_port}
advertised.listeners={protocol}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:{protocol},{protocol}:{protocol}
"""
_LOGIN: Final = """\
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={module}
listener.name.controller.plain.sasl.jaas.config={module}
"""
_MODULE: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="{user}" password="{password}" user_{user}="{password}";'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses of a broker and whether it asks for a login, as its directory keeps them."""

    port: int
    controller_port: int
    host: str = HERE
    has_login: bool = False

    @classmethod
    def of(cls, directory: Path) -> Self | None:
        """As at the last start; None: it was never started."""
        with suppress(FileNotFoundError):
            return cls(**json.loads(directory.joinpath(_FILE).read_text(encoding="utf-8")))
        return None

    def keep(self, directory: Path) -> None:
        """Remember it for the next start."""
        write_own(directory / _FILE, json.dumps(asdict(self)))

    def __str__(self) -> str:
        return f"{self.servers}{' with a login' if self.has_login else ''}"

    @property
    def servers(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    def client_options(self, directory: Path, *, shown: bool) -> dict[str, str]:
        """Options of a client, by Kafka's names; ``shown``: with a reference in place of the password."""
        if not self.has_login:
            return {"bootstrap.servers": self.servers}
        file = directory / _PASSWORD_FILE
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": f"${{file:{file}}}" if shown else file.read_text(encoding="utf-8").strip(),
        }

    def server_properties(self, directory: Path) -> str:
        """The broker's own; makes the password, if there is none."""
        protocol = "SASL_PLAINTEXT" if self.has_login else "PLAINTEXT"
        listeners = _LISTENERS.format(
            here=HERE, protocol=protocol, host=self.host, port=self.port, controller_port=self.controller_port
        )
        if not self.has_login:
            return listeners
        with suppress(FileExistsError):
            file = os.open(directory / _PASSWORD_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(secrets.token_hex(24))
        password = self.client_options(directory, shown=False)["sasl.password"]
        return listeners + _LOGIN.format(module=_MODULE.format(user=USER, password=password))


def write_own(path: Path, text: str) -> None:
    """Replace a file atomically with one that only its owner reads."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
