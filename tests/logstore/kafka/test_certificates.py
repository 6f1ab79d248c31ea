"""A refused certificate is said at once, with what is wrong with it: a listener with TLS and this client, no broker."""

import datetime
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from logstore.kafka import topics as topics_module
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.refusals import server_fault
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class Signed:
    """A certificate, its key, and where both lie."""

    path: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def signed(home: Path, name: str, by: Signed | None = None, *, days: tuple[int, int] = (-9, 9)) -> Signed:
    """A certificate of ``localhost``, or of an authority: that of its own when nobody signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject if by is None else by.certificate.subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW + days[0] * DAY,
        not_valid_after=NOW + days[1] * DAY,
    ).add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
    made = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(
        key if by is None else by.key, hashes.SHA256()
    )
    path, coded = home / f"{name}.pem", serialization.Encoding.PEM
    private = key.private_bytes(coded, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(coded))
    return Signed(path, made, key)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return signed(tmp_path_factory.mktemp("authority"), "authority")


class Listener:
    """Greets clients by TLS, and hangs up."""

    def __init__(self, certificate: Path, clients_of: Path | None = None) -> None:
        """``clients_of``: the authority whose clients are let in; None: all are."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if clients_of is not None:
            self._context.load_verify_locations(clients_of)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            plain.settimeout(10)
            try:
                with self._context.wrap_socket(plain, server_side=True) as secure:
                    secure.recv(1)
            except OSError:
                plain.close()


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    opened: list[Listener] = []
    yield opened
    for each in opened:
        each.close()


def refusal(monkeypatch: pytest.MonkeyPatch, listener: Listener, host: str = "localhost", **options: object) -> str:
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 30.0)
    given = {"bootstrap.servers": f"{host}:{listener.port}", "security.protocol": "SSL"}
    given |= {name.replace("_", "."): str(value) for name, value in options.items()}
    with pytest.raises(InvalidInputError) as caught:
        LogTopics(KafkaProperties.parse(given)).check_reachable()
    return str(caught.value)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("days", "host", "is_known", "cause"),
    [
        ((-9, 9), "localhost", False, r"is signed by an unknown authority: .* fix=set log.kafka.ssl.ca.location to"),
        ((-9, 9), "127.0.0.1", True, r"is for another host name: .* fix=use in log.kafka.bootstrap.servers"),
        ((-9, -1), "localhost", True, r"has expired: broker=localhost:\d+ fix=give the broker a new one"),
        ((1, 9), "localhost", True, r"is not valid yet: .* or correct the clock of this machine"),
    ],
)
def test_each_fault_of_a_brokers_certificate_has_its_own_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Signed, listeners: list[Listener],
    days: tuple[int, int], host: str, is_known: bool, cause: str,
) -> None:  # fmt: skip
    """Issue 22 point 5: name, authority and expiry had one text for all three."""
    other = signed(tmp_path, "other")
    listeners.append(Listener(signed(tmp_path, "broker", authority, days=days).path))
    trusted = authority if is_known else other
    said = refusal(monkeypatch, listeners[0], host, ssl_ca_location=trusted.path)
    assert re.search(f"cause=the certificate of the broker {cause}", said), said


@pytest.mark.parametrize(
    ("days", "signer", "cause"),
    [
        (None, "authority", "the brokers want a certificate of the client fix=set log.kafka.ssl.certificate.location"),
        ((-9, -1), "authority", "the client's certificate has expired"),
        ((-9, 9), "other", "the brokers do not know the authority of the client's certificate"),
    ],
)
def test_each_fault_of_the_clients_certificate_has_its_own_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Signed, listeners: list[Listener],
    days: tuple[int, int] | None, signer: str, cause: str,
) -> None:  # fmt: skip
    """Cluster, finding 6: a client without one was reported to look whether the broker runs."""
    listeners.append(Listener(signed(tmp_path, "broker", authority).path, clients_of=authority.path))
    options = {"ssl_ca_location": authority.path}
    if days is not None:
        by = authority if signer == "authority" else signed(tmp_path, "other")
        own = signed(tmp_path, "client", by, days=days)
        options |= {"ssl_certificate_location": own.path, "ssl_key_location": own.path}
    assert f"cause={cause}" in refusal(monkeypatch, listeners[0], **options)


def test_what_cannot_be_asked_stays_as_the_client_said_it(tmp_path: Path) -> None:
    for client in ({"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": "h:1", "ssl.ca.location": "/none.pem"}):
        assert server_fault(client, "ssl://localhost:1/bootstrap: certificate verify failed") is None
        assert server_fault({**client, "bootstrap.servers": "nonsense"}, "certificate verify failed") is None
