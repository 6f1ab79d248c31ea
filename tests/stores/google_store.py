"""Google's protocol in front of S3Proxy: what Google's XML protocol calls otherwise than S3's is renamed, and signed.

No registry has a server that honours ``x-goog-if-generation-match`` (fake-gcs-server and gcp-storage-emulator do not
take a PUT of the XML protocol at all), but Google made that protocol S3's with other names of headers. So the client,
its requests and the races are real; that Google's own store answers alike is shown by its documentation only.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from email.utils import formatdate
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from tests.stores.object_store import ACCESS_KEY, SECRET_KEY

TOKEN: Final = "test-token-never-shown"
_NAMES: Final = {"x-goog-if-generation-match": "If-None-Match"}
_SIGNED_PARAMETERS: Final = ("partNumber", "uploadId", "uploads")

Headers = Sequence[tuple[str, str]]


def as_s3(method: str, path: str, headers: Headers) -> Headers:
    """The headers of a request in S3's names, with a signature in place of the token."""
    given = [(name.lower(), value) for name, value in headers]
    assert ("authorization", f"Bearer {TOKEN}") in given, "a request without the login"
    assert all(value == "0" for name, value in given if name == "x-goog-if-generation-match")
    date = formatdate(usegmt=True)
    renamed = [(_renamed(name), "*" if name in _NAMES else value) for name, value in given if name != "authorization"]
    metadata = sorted((name, value) for name, value in renamed if name.startswith("x-amz-"))
    texts = dict(renamed)
    parts = urlsplit(path)
    query = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key in _SIGNED_PARAMETERS]
    resource = parts.path + ("?" if query else "") + "&".join(f"{k}={v}" if v else k for k, v in sorted(query))
    lines = [method, texts.get("content-md5", ""), texts.get("content-type", ""), date]
    text = "\n".join([*lines, *(f"{name}:{value}" for name, value in metadata), resource])
    digest = hmac.new(SECRET_KEY.encode(), text.encode(), hashlib.sha1).digest()
    return [*renamed, ("date", date), ("authorization", f"AWS {ACCESS_KEY}:{base64.b64encode(digest).decode()}")]


def as_google(headers: Headers) -> Headers:
    """The headers of an answer in Google's names."""
    return [(name.lower().replace("x-amz-meta-", "x-goog-meta-"), value) for name, value in headers]


def _renamed(name: str) -> str:
    return _NAMES.get(name, name.replace("x-goog-meta-", "x-amz-meta-"))
