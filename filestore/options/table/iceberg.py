"""Whether Iceberg readers find the table, and how. Source: Paimon IcebergOptions."""

from typing import Final

from filestore.options.option import NOTHING, STORAGE, Option, OptionValues
from filestore.options.parsing import boolean, choice, text
from filestore.options.table.common import COUNT, NUMBER

DISABLED: Final = "disabled"
TABLE_LOCATION: Final = "table-location"
HADOOP_CATALOG: Final = "hadoop-catalog"
REST_CATALOG: Final = "rest-catalog"
BUILT_STORAGE: Final = (DISABLED, TABLE_LOCATION, HADOOP_CATALOG, REST_CATALOG)


class IcebergOptions(OptionValues):
    """Iceberg metadata beside the snapshots."""

    iceberg_storage = Option(
        "metadata.iceberg.storage",
        choice(*BUILT_STORAGE, "hive-catalog"),
        DISABLED,
        "Where Iceberg metadata of every snapshot is written; hive-catalog is refused.",
        STORAGE,
    )
    iceberg_storage_location = Option(
        "metadata.iceberg.storage-location",
        choice(TABLE_LOCATION, "catalog-location"),
        None,
        "The directory of the metadata, if it does not follow from metadata.iceberg.storage.",
        NOTHING,
    )
    iceberg_rest_uri = Option(
        "metadata.iceberg.rest.uri",
        text,
        None,
        "Address of the Iceberg REST catalog of rest-catalog, without a login.",
        NOTHING,
    )
    iceberg_rest_warehouse = Option(
        "metadata.iceberg.rest.warehouse", text, None, "The warehouse that the REST catalog is asked for.", NOTHING
    )
    iceberg_database = Option(
        "metadata.iceberg.database", text, None, "Namespace in the REST catalog, if not the database.", NOTHING
    )
    iceberg_table = Option(
        "metadata.iceberg.table", text, None, "Name in the REST catalog, if not the table's.", NOTHING
    )
    iceberg_format_version = Option(
        "metadata.iceberg.format-version", choice("2", "3"), "2", "Iceberg's version; 3 has deletion vectors.", STORAGE
    )
    iceberg_manifest_compression = Option(
        "metadata.iceberg.manifest-compression",
        choice("snappy", "deflate", "gzip", "zstd", "null", "none", "uncompressed"),
        "deflate",
        "Codec of Iceberg's manifests; snappy needs the package cramjam.",
        NOTHING,
    )
    iceberg_delete_after_commit = Option(
        "metadata.iceberg.delete-after-commit.enabled",
        boolean,
        True,
        "Delete metadata files of former versions.",
        NOTHING,
    )
    iceberg_previous_versions_max = Option(
        "metadata.iceberg.previous-versions-max", NUMBER, 0, "Former metadata files that are kept.", NOTHING
    )
    iceberg_compaction_min_files = Option(
        "metadata.iceberg.compaction.min.file-num", COUNT, 10, "Small Iceberg manifests that are merged.", NOTHING
    )
