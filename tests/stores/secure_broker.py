"""A Kafka broker as companies run it: TLS with an authority of its own, logins with passwords, and access lists."""

import subprocess
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from engine.broker.broker import Broker
from engine.broker.jars import find_java
from tests.stores.processes import free_port
from tests.support.clients import quiet_admin

_PATIENCE_S: Final = 30.0
_STORE_PASSWORD: Final = "of-the-store"
# Behind the broker's own settings; the last one of a name counts. The listener without TLS stays: it is the door of the
# administrator, whom the broker calls ANONYMOUS.
_SECURITY: Final = """
listeners={listeners},SASL_SSL://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://{plain},SASL_SSL://localhost:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={login_module} required;
ssl.keystore.type=PKCS12
ssl.keystore.location={key_store}
ssl.keystore.password={password}
ssl.key.password={password}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
"""


@dataclass(frozen=True, slots=True)
class Right:
    """What one entry of an access list allows."""

    operation: str
    kind: str  # TOPIC or TRANSACTIONAL_ID
    name: str
    is_prefix: bool = False


class SecureBroker(Broker):
    """Listens with TLS as ``localhost``, and only as that: its certificate does not fit 127.0.0.1."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._secure_port = free_port()
        self._numbers = count(1)

    @property
    def secure_servers(self) -> str:
        """The address for clients with a password."""
        return f"localhost:{self._secure_port}"

    @property
    def misnamed_servers(self) -> str:
        """The same broker, by a name that its certificate does not have."""
        return f"127.0.0.1:{self._secure_port}"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the broker's, in PEM."""
        return self.data_dir / "authority.pem"

    def new_user(self, *rights: Right) -> dict[str, str]:
        """The client's options of a user that nothing else uses and that has exactly these rights."""
        user, password = f"user-{next(self._numbers)}", f"secret-{uuid4().hex}"
        login = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        _done(self._admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, login, password.encode())]))
        if rights:
            _done(self._admin.create_acls([_binding(user, right) for right in rights]))
            self._await_rights(user, len(rights))
        return {
            "bootstrap.servers": self.secure_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority),
        }

    def _await_rights(self, user: str, count: int) -> None:
        """Until the broker applies them, which it does some time after its controller has written them down."""
        kind, pattern, action = ResourceType.ANY, ResourcePatternType.ANY, AclOperation.ANY
        of_user = AclBindingFilter(kind, None, pattern, f"User:{user}", None, action, AclPermissionType.ANY)
        deadline = time.monotonic() + _PATIENCE_S
        while len(self._admin.describe_acls(of_user).result(30)) < count:
            assert time.monotonic() < deadline, f"the broker does not apply the rights of {user}"
            time.sleep(0.02)

    @cached_property
    def _admin(self) -> AdminClient:
        return quiet_admin(self.bootstrap_servers)

    def _prepare(self) -> int:
        plain_port = super()._prepare()
        key_store = self._make_keys()
        properties = self._file("server.properties")
        text = properties.read_text(encoding="utf-8")
        listeners = next(line for line in text.splitlines() if line.startswith("listeners=")).removeprefix("listeners=")
        security = _SECURITY.format(
            listeners=listeners,
            plain=self.bootstrap_servers,
            port=self._secure_port,
            key_store=key_store,
            password=_STORE_PASSWORD,
            login_module="org.apache.kafka.common.security.scram.ScramLoginModule",
        )
        properties.write_text(text + security, encoding="utf-8")
        return plain_port

    def _make_keys(self) -> Path:
        """The broker's key, signed by an authority that is made for it."""
        store = self._file("keys.p12")
        name, curve = "-dname", ("-keyalg", "EC")
        self._keytool(store, "-genkeypair", "authority", name, "CN=authority", *curve, "-ext", "bc:c")
        signed = ("-signer", "authority", "-ext", "san=dns:localhost")
        self._keytool(store, "-genkeypair", "broker", name, "CN=broker", *curve, *signed)
        self._keytool(store, "-exportcert", "authority", "-rfc", "-file", str(self.authority))
        self._keytool(store, "-delete", "authority")
        return store

    def _keytool(self, store: Path, command: str, alias: str, *more: str) -> None:
        keytool = find_java().with_name("keytool")
        fast = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto")
        place = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", _STORE_PASSWORD)
        subprocess.run([str(keytool), *fast, command, "-alias", alias, *place, *more], capture_output=True, check=True)


def _binding(user: str, right: Right) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    operation, allow = AclOperation[right.operation], AclPermissionType.ALLOW
    return AclBinding(ResourceType[right.kind], right.name, pattern, f"User:{user}", "*", operation, allow)


def _done(futures: "dict[Any, Future[Any]]") -> None:
    for future in futures.values():
        future.result(30)
