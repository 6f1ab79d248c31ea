"""Clients of the object stores of each cloud: how one is reached, and what its library needs.

A store's settings are values that can be pickled and compared; ``client_of`` opens a client for them. What differs
between clouds is here: addresses, logins, how the metadata of an object may be named, how a missing bucket is reported.
Source: Paimon's option names (``s3.*``); the environment variables of each cloud's own tools.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

    Client = S3Store | GCSStore | AzureStore

S3_SCHEMES: Final = ("s3", "s3a", "s3n")
GCS_SCHEMES: Final = ("gs",)
AZURE_SCHEMES: Final = ("az", "abfss", "abfs")
HDFS_SCHEME: Final = "hdfs"  # of a file system beside them, see HdfsIO
SCHEMES: Final = (*S3_SCHEMES, *GCS_SCHEMES, *AZURE_SCHEMES)
MISSING_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
"""Error codes in the answers of S3 and GCS, and of Azure."""


class StoreSettings(Protocol):
    """Access to one bucket or container. Equal for equal access."""

    def __hash__(self) -> int:
        """Clients are kept by it."""

    @property
    def bucket(self) -> str:
        """Name of the bucket or container."""

    @property
    def endpoint(self) -> str | None:
        """URL of the store; None: the cloud's own."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Prefixes of paths in this bucket, scheme and bucket."""

    @property
    def claim(self) -> str:
        """Name of the metadata of an object that holds the claim of its creator."""

    @property
    def condition(self) -> str:
        """Name of the header that makes a PUT fail where there is an object."""

    def client(self) -> "Client":
        """A new client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Access to a bucket of S3 or of a compatible store. None values are taken from the AWS environment variables."""

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool = True
    max_retries: int = 5  # per request; requests that may have taken effect are not retried

    @property
    def addresses(self) -> tuple[str, ...]:
        """Hadoop's spellings too."""
        return tuple(f"{scheme}://{self.bucket}" for scheme in S3_SCHEMES)

    @property
    def claim(self) -> str:
        """As tables of today have it."""
        return "fluvial-claim"

    @property
    def condition(self) -> str:
        """Of HTTP."""
        return "If-None-Match"

    def client(self) -> "S3Store":
        """A client of S3's protocol."""
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            config=_given(
                endpoint=self._address(),
                region=self.region,
                access_key_id=self.access_key,
                secret_access_key=self.secret_key,
                session_token=self.session_token,
            ),
            virtual_hosted_style_request=not self.path_style,
            client_options=_transport(self.endpoint),
            retry_config=_retries(self.max_retries),
        )

    def _address(self) -> str | None:
        """With virtual-hosted addressing the library needs the bucket in the host name."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{self.bucket}.{host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsSettings:
    """Access to a bucket of Google Cloud Storage. Without a login: that of gcloud, else the role of the machine."""

    bucket: str
    endpoint: str | None = None
    credentials_file: str | None = None  # a service account, or what `gcloud auth application-default login` writes
    service_account_key: str | None = field(default=None, repr=False)  # the text of such a file
    token: str | None = field(default=None, repr=False)  # an OAuth access token, used until it expires
    max_retries: int = 5

    @property
    def addresses(self) -> tuple[str, ...]:
        """One spelling."""
        return (f"gs://{self.bucket}",)

    @property
    def claim(self) -> str:
        """As in S3."""
        return "fluvial-claim"

    @property
    def condition(self) -> str:
        """The generation 0 is no object."""
        return "x-goog-if-generation-match"

    def client(self) -> "GCSStore":
        """A client of the XML protocol of GCS."""
        from obstore.store import GCSStore

        return GCSStore(
            self.bucket,
            config=_given(
                base_url=self.endpoint,
                application_credentials=self.credentials_file,
                service_account_key=self.service_account_key,
                bearer_token=self.token,
            ),
            client_options=_transport(self.endpoint),
            retry_config=_retries(self.max_retries),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """Access to a container of an Azure storage account. Without a login: the managed identity of the machine."""

    bucket: str
    account: str
    address: str  # what paths begin with: az://container or abfss://container@account.host
    endpoint: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    max_retries: int = 5

    @property
    def addresses(self) -> tuple[str, ...]:
        """The spelling of the warehouse."""
        return (self.address,)

    @property
    def claim(self) -> str:
        """Azure takes only names that are identifiers of C#."""
        return "fluvial_claim"

    @property
    def condition(self) -> str:
        """Of HTTP."""
        return "If-None-Match"

    def client(self) -> "AzureStore":
        """A client of the Blob service."""
        from obstore.store import AzureStore

        return AzureStore(
            self.bucket,
            config=_given(
                account_name=self.account,
                endpoint=self.endpoint,
                account_key=self.account_key,
                sas_key=self.sas_token,
                tenant_id=self.tenant_id,
                client_id=self.client_id,
                client_secret=self.client_secret,
            ),
            client_options=_transport(self.endpoint),
            retry_config=_retries(self.max_retries),
        )


@lru_cache(maxsize=64)
def client_of(settings: StoreSettings) -> "Client":
    """The client of a bucket, cached per process to reuse connections."""
    return settings.client()


def _given(**values: str | None) -> Any:
    return {key: value for key, value in values.items() if value is not None}


def _transport(endpoint: str | None) -> "ClientConfig":
    is_plain = (endpoint or "").startswith("http://")
    return {"allow_http": is_plain, "timeout": "120s", "connect_timeout": "10s"}


def _retries(max_retries: int) -> "RetryConfig":
    return {"max_retries": max_retries, "retry_timeout": timedelta(seconds=60)}
