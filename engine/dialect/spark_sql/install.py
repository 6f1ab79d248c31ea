"""``engine.install``, ``engine.uninstall`` and ``engine.session``: tables of Fluvial in Spark's own SQL."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from engine.spark import session as plain
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from engine.catalog import Catalog
    from engine.spark.catalog.hooks import InstalledCatalogs

_NAME: Final = "fluvial"
_SPARKS: Final = ("spark_catalog", "system", "session", "global_temp")


def install(spark: SparkSession, catalog: "Catalog | str | None" = None, name: str = _NAME) -> SparkSession:
    """Make a catalog known to Spark's own SQL, in this session and all others of the application.

    From then on ``spark.sql``, ``spark.table``, ``spark.catalog``, ``df.writeTo``, ``readStream.table`` and
    ``writeStream.toTable`` know its tables as ``name.database.table``, also in sessions that are made later.

    Args:
        spark: the session; it runs.
        catalog: the catalog, or the directory of its warehouse. None: what ``spark.sql.catalog.<name>.warehouse`` and
            other settings with this prefix say.
        name: of the catalog in statements; a catalog of that name is replaced.

    Returns:
        The session.

    Raises:
        InvalidInputError: Spark Connect, a Spark whose inside is not known, a name of Spark's own, or no catalog.
    """
    if name.lower() in _SPARKS or not name.isidentifier():
        raise InvalidInputError(f"not a name for a catalog: name={name} fix='a word that Spark does not use'")
    from engine.catalog import Catalog
    from engine.dialect.entry import configured_catalog  # the parser is loaded when it is used

    if catalog is None:
        catalog = configured_catalog(spark, name)
    opened = Catalog(catalog) if isinstance(catalog, str) else catalog
    _installed(spark).add(spark, name, opened)
    return spark


def uninstall(spark: SparkSession, name: str = _NAME) -> None:
    """Remove a catalog from Spark's SQL.

    Args:
        spark: the session.
        name: name of the catalog in Spark's SQL.

    Raises:
        InvalidInputError: no catalog is installed under this name.
    """
    _installed(spark).remove(spark, name)


def installed_names(spark: SparkSession) -> frozenset[str]:
    """Names of the catalogs that the sessions of this application have. Raises: InvalidInputError: see ``install``."""
    return frozenset(_installed(spark).catalogs)


def session_with_catalogs(
    app_name: str = "fluvial",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    catalogs: "Mapping[str, Catalog | str] | None" = None,
) -> SparkSession:
    """A Spark session with settings that suit pipelines, see ``engine.spark.session.session``.

    Args:
        app_name: name of the application.
        master: master URL; None: Spark's configuration, else ``local[*]``.
        conf: settings of the session, which override the defaults.
        catalogs: catalogs to install into Spark's SQL, by name; see ``install``.

    Returns:
        The session of this process: a running one, or a new one.

    Raises:
        InvalidInputError: a catalog cannot be installed, see ``install``.
    """
    spark = plain.session(app_name, master, conf)
    for name, catalog in (catalogs or {}).items():
        install(spark, catalog, name)
    return spark


def _installed(spark: SparkSession) -> "InstalledCatalogs":
    from engine.dialect.spark_sql.sql_statements import SqlStatements
    from engine.spark.catalog.hooks import InstalledCatalogs

    return InstalledCatalogs.of(spark, SqlStatements)
