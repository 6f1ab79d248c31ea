"""Why a certificate is refused: the client says only that it is. Asked of the broker itself, when that has happened."""

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final

ASK_S: Final = 3.0

_PLACE: Final = re.compile(r"://(?:\[([^\]]+)\]|([^:/\s]+)):(\d+)")
_EXPIRED: Final = 10  # codes of OpenSSL's verification
_NOT_YET: Final = 9
_OTHER_NAME: Final = frozenset({62, 64})  # of a host, of an address


def server_fault(by_name: Mapping[str, str], said: str) -> str | None:
    """What is wrong with a broker's certificate, as `` cause=... fix=...``; None: nothing, or it is not known.

    Args:
        by_name: the properties of the client.
        said: its message, which names the broker; else those of ``bootstrap.servers`` are asked.
    """
    for host, port in _brokers(by_name, said):
        try:
            context = _context(by_name)
            with socket.create_connection((host, port), ASK_S) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return _fault(error, f"{host}:{port}")
        except (OSError, ValueError):
            continue  # the client's own message stays
    return None


def client_fault(said: str, *, has_certificate: bool) -> str | None:
    """What brokers have against the client's certificate, by the alert that they sent; None: they sent none.

    Args:
        said: the client's message.
        has_certificate: whether the client has one.
    """
    alert = re.search(r"alert (certificate \w+|bad certificate|unsupported certificate|unknown ca)", said)
    if alert is None:
        return None
    if not has_certificate:
        return (
            " cause=the brokers want a certificate of the client"
            " fix=set log.kafka.ssl.certificate.location and log.kafka.ssl.key.location"
        )
    if alert[1] == "unknown ca":
        why = "the brokers do not know the authority of the client's certificate"
    elif alert[1] == "certificate expired":
        why = "the client's certificate has expired"
    else:
        why = f"the brokers refuse the client's certificate ({alert[1]})"
    return f" cause={why} fix=set log.kafka.ssl.certificate.location to one that they accept, and its key"


def _fault(error: ssl.SSLCertVerificationError, place: str) -> str:
    if error.verify_code in _OTHER_NAME:
        return (
            f" cause=the certificate of the broker is for another host name: broker={place}"
            f" said={error.verify_message!r}"
            " fix=use in log.kafka.bootstrap.servers, and as the brokers' advertised.listeners, a name that it has"
        )
    if error.verify_code in (_EXPIRED, _NOT_YET):
        when = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return (
            f" cause=the certificate of the broker {when}: broker={place}"
            " fix=give the broker a new one, or correct the clock of this machine"
        )
    return (
        f" cause=the certificate of the broker is signed by an unknown authority: broker={place}"
        f" said={error.verify_message!r} fix=set log.kafka.ssl.ca.location to the authority's certificate (PEM)"
    )


def _context(by_name: Mapping[str, str]) -> ssl.SSLContext:
    file, text = by_name.get("ssl.ca.location"), by_name.get("ssl.ca.pem")
    context = ssl.create_default_context(cafile=file, cadata=text)
    context.check_hostname = by_name.get("ssl.endpoint.identification.algorithm", "https") != "none"
    return context


def _brokers(by_name: Mapping[str, str], said: str) -> list[tuple[str, int]]:
    found = [(bracketed or host, int(port)) for bracketed, host, port in _PLACE.findall(said)]
    if not found:
        servers = (f"://{each.strip().rpartition('://')[2]}" for each in by_name["bootstrap.servers"].split(","))
        found = [(bracketed or host, int(port)) for bracketed, host, port in _PLACE.findall(" ".join(servers))]
    return list(dict.fromkeys(found))[:3]
