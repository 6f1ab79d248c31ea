"""Options of a catalog: where its names and files are kept, how those are reached, and how commits exclude each other.

They are Paimon's, with its names. Whatever is not a catalog's is the default of an option in tables that are made here,
behind ``table-default.`` or under the table's own name.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from filestore.options.option import NOTHING, Option, OptionValues
from filestore.options.parsing import boolean, choice, duration_ms, retention_ms, text, verbatim
from filestore.options.references import with_secrets
from filestore.options.rules import ALIASES as TABLE_ALIASES
from filestore.options.rules import ELSEWHERE, FREE_PREFIXES
from filestore.options.table.common import DAY_MS
from filestore.options.table_options import SESSION_PREFIX, TableOptions, canonical_options
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names
from lsm.secret_names import is_secret_name

TABLE_DEFAULT_PREFIX: Final = "table-default."

CATALOG_ALIASES: Final[Mapping[str, str]] = {
    "s3.access.key": "s3.access-key",
    "s3.secret.key": "s3.secret-key",
    "s3.session.token": "s3.session-token",
    "s3.endpoint.region": "s3.region",
    "s3.path-style-access": "s3.path.style.access",
    "jdbc.username": "jdbc.user",
    "fs.gs.auth.service.account.json.keyfile": "gs.credentials-file",
}
# Where a value comes from that the catalog was not given; the first that is set.
ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "s3.access-key": ("AWS_ACCESS_KEY_ID",),
    "s3.secret-key": ("AWS_SECRET_ACCESS_KEY",),
    "s3.session-token": ("AWS_SESSION_TOKEN",),
    "gs.endpoint": ("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "STORAGE_EMULATOR_HOST"),
    "gs.credentials-file": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "gs.service-account-key": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "gs.token": ("CLOUDSDK_AUTH_ACCESS_TOKEN",),
    "azure.account": ("AZURE_STORAGE_ACCOUNT",),
    "azure.endpoint": ("AZURE_STORAGE_SERVICE_ENDPOINT",),
    "azure.account-key": ("AZURE_STORAGE_KEY",),
    "azure.sas-token": ("AZURE_STORAGE_SAS_TOKEN",),
    "azure.tenant-id": ("AZURE_TENANT_ID",),
    "azure.client-id": ("AZURE_CLIENT_ID",),
    "azure.client-secret": ("AZURE_CLIENT_SECRET",),
}
# The logins of each cloud, the first of which that the environment has is used; each is one option or several.
LOGINS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("s3.access-key", "s3.secret-key", "s3.session-token"),),
    (("gs.token",), ("gs.service-account-key",), ("gs.credentials-file",)),
    (("azure.account-key",), ("azure.sas-token",), ("azure.tenant-id", "azure.client-id", "azure.client-secret")),
)
STORE_PREFIX: Final = "lineage-meta."
"""Before options of a store of lineage that a package brings."""
_OTHERS: Final = frozenset(key for key, owner in ELSEWHERE.items() if owner == "the catalog")


class CatalogOptions(OptionValues):
    """The options in force for a catalog."""

    metastore = Option(
        "metastore",
        choice("filesystem", "jdbc", "hive", "rest"),
        "filesystem",
        "Where names are kept: directories, a database, a Hive metastore, Paimon's REST catalog (read only).",
        NOTHING,
    )
    uri = Option(
        "uri",
        text,
        None,
        "Database of metastore=jdbc: sqlite:///file, postgresql+psycopg://user@host/db, jdbc:...; of metastore=hive: "
        "thrift://host:9083, several with commas; of metastore=rest: https://host:port.",
        NOTHING,
    )
    rest_warehouse = Option(
        "rest.warehouse", text, None, "Name of the warehouse on that server; default: its address.", NOTHING
    )
    token_provider = Option("token.provider", choice("bear"), None, "How that server is shown who asks.", NOTHING)
    token = Option("token", verbatim, None, "Bearer token for it.", NOTHING, secret=True)
    catalog_key = Option(
        "catalog-key", text, "jdbc", "Name of this catalog among those that share a database.", NOTHING
    )
    jdbc_user = Option("jdbc.user", text, None, "User of the database.", NOTHING)
    jdbc_password = Option("jdbc.password", verbatim, None, "Password of the database.", NOTHING, secret=True)
    external_paths_allowed = Option(
        "external-paths.allowed",
        text,
        None,
        "Directories, with commas, in which tables may lie and have data files.",
        NOTHING,
    )
    lock_enabled = Option(
        "lock.enabled",
        boolean,
        None,
        "Commit under the catalog's lock; on where names are in a database or metastore and files in an object store.",
        NOTHING,
    )
    lock_type = Option(
        "lock.type", choice("jdbc", "hive"), None, "Which lock; default: that of the metastore.", NOTHING
    )
    lock_acquire_timeout_ms = Option(
        "lock-acquire-timeout",
        duration_ms,
        480_000,
        "Longest wait for the lock, and life of one whose holder died.",
        NOTHING,
    )
    lock_check_max_sleep_ms = Option(
        "lock-check-max-sleep", duration_ms, 8000, "Longest pause between two looks at the lock.", NOTHING
    )
    table_lineage = Option(
        "table-lineage",
        boolean,
        None,
        "Keep which jobs read and write which tables; fixed once the catalog is made.",
        NOTHING,
        immutable=True,
    )
    data_lineage = Option(
        "data-lineage",
        boolean,
        None,
        "Keep which snapshots each batch of a job read and wrote; fixed likewise.",
        NOTHING,
        immutable=True,
    )
    lineage_meta = Option(
        "lineage-meta", text, "jdbc", "Store of lineage: jdbc, or one that a package brings.", NOTHING
    )
    jdbc_driver = Option("jdbc.driver", text, None, "Taken, and not needed: the driver goes with jdbc.url.", NOTHING)
    jdbc_url = Option(
        "jdbc.url", text, None, "Database of lineage; default: a SQLite file in a local warehouse.", NOTHING
    )
    jdbc_database = Option(
        "jdbc.database", text, "paimon", "Database or schema in it that has the tables of lineage.", NOTHING
    )
    lineage_on_unavailable = Option(
        "lineage.on-unavailable",
        choice("queue", "wait", "fail"),
        "queue",
        "When the store of lineage is down: note it in the warehouse for later, try until it answers, or fail the job.",
        NOTHING,
    )
    lineage_data_time_retained_ms = Option(
        "lineage.data.time-retained",
        retention_ms,
        90 * DAY_MS,
        "Age at which lineage of snapshots is deleted, or unlimited. Tables of jobs are kept.",
        NOTHING,
    )
    openlineage_url = Option(
        "openlineage.url", text, None, "Where OpenLineage events of jobs go: a file, or http(s)://collector.", NOTHING
    )
    openlineage_namespace = Option(
        "openlineage.namespace", text, "fluvial", "Namespace of the jobs in these events.", NOTHING
    )
    openlineage_api_key = Option(
        "openlineage.api-key", verbatim, None, "Key that the collector asks for.", NOTHING, secret=True
    )
    hdfs_webhdfs_address = Option(
        "hdfs.webhdfs-address",
        text,
        None,
        "HTTP address of the name node, several with commas; default: port 9870 of the warehouse's host.",
        NOTHING,
    )
    hdfs_user = Option(
        "hdfs.user", text, None, "User in HDFS; default: HADOOP_USER_NAME, else this machine's.", NOTHING
    )
    s3_endpoint = Option(
        "s3.endpoint", text, None, "URL of the object store; default: AWS_ENDPOINT_URL, else Amazon's.", NOTHING
    )
    s3_region = Option("s3.region", text, None, "Region; default: AWS_REGION, else us-east-1.", NOTHING)
    s3_access_key = Option(
        "s3.access-key", text, None, "Access key; default: AWS_ACCESS_KEY_ID, or the role of the machine.", NOTHING
    )
    s3_secret_key = Option(
        "s3.secret-key", verbatim, None, "Secret key; default: AWS_SECRET_ACCESS_KEY.", NOTHING, secret=True
    )
    s3_session_token = Option(
        "s3.session-token",
        verbatim,
        None,
        "Token of a temporary key; default: AWS_SESSION_TOKEN.",
        NOTHING,
        secret=True,
    )
    s3_path_style_access = Option(
        "s3.path.style.access", boolean, True, "Bucket in the path of the URL; false: in the name of the host.", NOTHING
    )
    gs_endpoint = Option(
        "gs.endpoint",
        text,
        None,
        "URL of a store with Google's protocol; default: STORAGE_EMULATOR_HOST, or Google's.",
        NOTHING,
    )
    gs_credentials_file = Option(
        "gs.credentials-file",
        text,
        None,
        "Google's file of a service account or user; default: GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the role.",
        NOTHING,
    )
    gs_service_account_key = Option(
        "gs.service-account-key",
        verbatim,
        None,
        "Text of such a file; default: GOOGLE_SERVICE_ACCOUNT_KEY.",
        NOTHING,
        secret=True,
    )
    gs_token = Option(
        "gs.token", verbatim, None, "OAuth access token; default: CLOUDSDK_AUTH_ACCESS_TOKEN.", NOTHING, secret=True
    )
    azure_account = Option(
        "azure.account", text, None, "Storage account of az://container; default: AZURE_STORAGE_ACCOUNT.", NOTHING
    )
    azure_endpoint = Option(
        "azure.endpoint",
        text,
        None,
        "URL of the account's Blob service; default: AZURE_STORAGE_SERVICE_ENDPOINT, or Azure's.",
        NOTHING,
    )
    azure_account_key = Option(
        "azure.account-key", verbatim, None, "Key of the account; default: AZURE_STORAGE_KEY.", NOTHING, secret=True
    )
    azure_sas_token = Option(
        "azure.sas-token",
        verbatim,
        None,
        "Shared access signature; default: AZURE_STORAGE_SAS_TOKEN.",
        NOTHING,
        secret=True,
    )
    azure_tenant_id = Option(
        "azure.tenant-id", text, None, "Tenant of an application; default: AZURE_TENANT_ID.", NOTHING
    )
    azure_client_id = Option("azure.client-id", text, None, "The application; default: AZURE_CLIENT_ID.", NOTHING)
    azure_client_secret = Option(
        "azure.client-secret", verbatim, None, "Its secret; default: AZURE_CLIENT_SECRET.", NOTHING, secret=True
    )

    def __init__(self, texts: Mapping[str, str], *, table_defaults: Mapping[str, str] | None = None) -> None:
        """Made by ``parse``."""
        super().__init__(texts)
        self.__dict__["table_defaults"] = dict(table_defaults or {})

    table_defaults: Mapping[str, str]  # texts of new tables, by the table's keys; may hold secrets

    def _identity(self) -> Hashable:
        return (super()._identity(), tuple(sorted(self.table_defaults.items())))

    @property
    def given(self) -> Mapping[str, str]:
        """The options that the catalog was opened with, by today's keys, to open it again. They contain secrets."""
        return self.texts_by_key()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "CatalogOptions":
        """Separate a catalog's options from defaults of its tables.

        References in place of secrets are read.

        Raises:
            InvalidInputError: a key that neither has, with similar ones; a value that cannot be read; two spellings of
                one option that say different things.
        """
        own: dict[str, str] = {}
        defaults: dict[str, str] = {}
        for key, value in with_secrets(options, is_secret=_is_secret).items():
            name = CATALOG_ALIASES.get(key, key)
            if is_catalog_option(name) or name in _OTHERS:
                if own.setdefault(name, value) != value:
                    raise InvalidInputError(f"option is given twice: option={name}")
            else:
                _check_table_key(key)
                defaults[key.removeprefix(TABLE_DEFAULT_PREFIX)] = value
        return cls(own, table_defaults=canonical_options(defaults))


FIXED_CATALOG_KEYS: Final = tuple(key for key, option in CatalogOptions.declared.items() if option.is_immutable)
"""They cannot change once a catalog is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlace:
    """How any process finds the catalog of a table again. It can be pickled."""

    warehouse: str  # path or address
    options: Mapping[str, str] = field(repr=False)  # of the catalog; holds secrets


def from_environment(given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Options of an object store that the environment sets and the catalog was not given.

    A login comes from one place: with a part of one given, no other part is looked for.
    """
    found = {
        key: next((environment[name] for name in each if environment.get(name)), "")
        for key, each in ENVIRONMENT.items()
        if key not in given
    }
    for logins in LOGINS:
        is_given = any(key in given for login in logins for key in login)
        used = () if is_given else next((each for each in logins if any(found.get(key) for key in each)), ())
        for key in (key for login in logins if login != used for key in login):
            found.pop(key, None)
    return {key: value for key, value in found.items() if value}


def _is_secret(key: str) -> bool:
    name = key.removeprefix(TABLE_DEFAULT_PREFIX)
    option = CatalogOptions.declared.get(CATALOG_ALIASES.get(name, name)) or TableOptions.declared.get(name)
    return is_secret_name(name) if option is None else option.is_secret


def is_catalog_option(key: str) -> bool:
    """Whether a key, in any of its spellings, is a catalog's and not a table's."""
    return CATALOG_ALIASES.get(key, key) in CatalogOptions.declared or key.startswith(STORE_PREFIX)


def _check_table_key(given: str) -> None:
    key = given.removeprefix(TABLE_DEFAULT_PREFIX).removeprefix(SESSION_PREFIX)
    if (
        key in TableOptions.declared
        or key in TABLE_ALIASES
        or key.startswith((*FREE_PREFIXES, "fields."))
        or key in ELSEWHERE
    ):
        return
    if key == "log.scan.startup.mode":
        return
    close = close_names(key, [*CatalogOptions.declared, *TableOptions.declared, *TABLE_ALIASES], 3)
    raise InvalidInputError(f"unknown option: option={given} did_you_mean={close}")
