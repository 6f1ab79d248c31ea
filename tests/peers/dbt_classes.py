"""Classes of dbt's own tests of adapters, run with dbt-spark on a server of ours: see ``test_dbt_suite``.

Runs in .venv-dbt, where nothing of ours is, beside a copy of ``fluvial.sql``, the macros that a project needs. The
port of the server and the group of classes are in the environment. Models are tables where a class does not say.
"""

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

BASE = "dbt.tests.adapter"
MACROS = "fluvial.sql"
GROUPS: dict[str, dict[str, list[str]]] = {
    "few": {
        "basic.test_singular_tests": ["BaseSingularTests"],
        "dbt_show.test_dbt_show": ["BaseShowSqlHeader"],
    },
    "basic": {
        "basic.test_singular_tests": ["BaseSingularTests"],
        "basic.test_singular_tests_ephemeral": ["BaseSingularTestsEphemeral"],
        "basic.test_empty": ["BaseEmpty"],
        "basic.test_incremental": ["BaseIncremental", "BaseIncrementalNotSchemaChange"],
        "basic.test_table_materialization": ["BaseTableMaterialization"],
        "basic.test_validate_connection": ["BaseValidateConnection"],
        "dbt_show.test_dbt_show": ["BaseShowLimit", "BaseShowSqlHeader"],
        "empty.test_empty": ["BaseTestEmpty", "BaseTestEmptyInlineSourceRef"],
    },
    "seeds": {
        "simple_seed.test_seed": [
            "BaseSimpleSeedEnabledViaConfig",
            "BaseTestEmptySeed",
        ],
        "store_test_failures_tests.test_store_test_failures": ["BaseStoreTestFailuresLimit"],
    },
    "unit tests": {
        "unit_testing.test_case_insensitivity": ["BaseUnitTestCaseInsensivity"],
        "unit_testing.test_invalid_input": ["BaseUnitTestInvalidInput"],
    },
    "types": {
        f"utils.data_types.test_type_{each.lower()}": [f"BaseType{each}"]
        for each in ("BigInt", "Boolean", "Numeric", "String", "Timestamp")
    },
    "utils": {
        f"utils.test_{module}": [f"Base{name}"]
        for module, name in {
            "any_value": "AnyValue",
            "array_append": "ArrayAppend",
            "array_concat": "ArrayConcat",
            "array_construct": "ArrayConstruct",
            "bool_or": "BoolOr",
            "cast": "Cast",
            "cast_bool_to_text": "CastBoolToText",
            "concat": "Concat",
            "current_timestamp": "CurrentTimestampNaive",
            "date": "Date",
            "date_spine": "DateSpine",
            "date_trunc": "DateTrunc",
            "dateadd": "DateAdd",
            "datediff": "DateDiff",
            "equals": "Equals",
            "escape_single_quotes": "EscapeSingleQuotesBackslash",
            "except": "Except",
            "generate_series": "GenerateSeries",
            "get_powers_of_two": "GetPowersOfTwo",
            "hash": "Hash",
            "intersect": "Intersect",
            "last_day": "LastDay",
            "length": "Length",
            "position": "Position",
            "replace": "Replace",
            "right": "Right",
            "safe_cast": "SafeCast",
            "string_literal": "StringLiteral",
        }.items()
    },
}


def classes(group: str) -> dict[str, type]:
    """The classes of a group, with names that pytest collects."""
    bases = [(module, name) for module, names in GROUPS[group].items() for name in names]
    made = {f"Test{name}": (import_module(f"{BASE}.{module}"), name) for module, name in bases}
    return {called: type(called, (getattr(module, name),), {}) for called, (module, name) in made.items()}


def changed_schemas(strategy: str) -> type:
    """A class about columns that come and go, for a strategy that can only ignore or refuse them."""
    run_dbt = import_module("dbt.tests.util").run_dbt
    base = import_module(f"{BASE}.incremental.test_incremental_on_schema_change").BaseIncrementalOnSchemaChangeSetup

    class Changed(base):  # type: ignore[misc,valid-type]
        @pytest.fixture(scope="class")
        def project_config_update(self) -> dict[str, Any]:
            parts = {"+partition_by": "id"} if strategy == "insert_overwrite" else {}
            return {"models": {"+incremental_strategy": strategy, **parts}}

        def test_they_are_ignored(self, project: Any) -> None:
            names = ("incremental_ignore", "incremental_ignore_target")
            self.run_twice_and_assert(f"model_a {' '.join(names)}", *names, project)

        def test_they_are_refused(self, project: Any) -> None:
            selected = ["run", "--select", "model_a incremental_fail"]
            run_dbt([*selected, "--full-refresh"])
            assert "Compilation Error" in run_dbt(selected, expect_pass=False)[1].message

    return Changed


def unit_types() -> type:
    """The class about types of rows in unit tests, with values as Spark writes them."""
    base = import_module(f"{BASE}.unit_testing.test_types").BaseUnitTestingTypes

    class Types(base):  # type: ignore[misc,valid-type]
        @pytest.fixture
        def data_types(self) -> list[list[str]]:
            plain = [[each, each] for each in ("1", "2.0", "true")]
            texts = [["'12345'", "12345"], ["'text'", "text"], ["date '2011-11-11'", "2011-11-11"]]
            return [*plain, *texts, ["timestamp '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"]]

    return Types


def stored_failures() -> type:
    """The class about rows that fail a test, which are stored: their names are quoted."""
    module = import_module(f"{BASE}.store_test_failures_tests.test_store_test_failures")

    class Stored(module.StoreTestFailuresBase):  # type: ignore[misc,name-defined]
        @pytest.fixture(scope="class")
        def project_config_update(self) -> dict[str, Any]:
            stored = {"+schema": module.TEST_AUDIT_SCHEMA_SUFFIX, "+store_failures": True}
            return {"seeds": {"quote_columns": True}, "data_tests": stored}

        def test_they_are_stored(self, project: Any) -> None:
            self.run_tests_store_one_failure(project)
            self.run_tests_store_failures_and_assert(project)

    return Stored


GROUP = os.environ["FLUVIAL_DBT_GROUP"]
if GROUP == "schemas":
    TestAppend, TestInsertOverwrite = changed_schemas("append"), changed_schemas("insert_overwrite")
    TestStored = stored_failures()
else:
    globals().update(classes(GROUP))
if GROUP == "unit tests":
    TestTypes = unit_types()


@pytest.fixture(scope="class")
def dbt_profile_target() -> dict[str, Any]:
    port = int(os.environ["FLUVIAL_PORT"])
    return {"type": "spark", "method": "thrift", "host": "127.0.0.1", "port": port, "threads": 2}


@pytest.fixture(scope="class")
def dbt_project_yml(dbt_project_yml: dict[str, Any], project_root: Any) -> dict[str, Any]:
    place = Path(project_root) / "dbt_project.yml"
    config = yaml.safe_load(place.read_text(encoding="utf-8"))
    config["models"] = {"+file_format": "iceberg", "+materialized": "table", **config.get("models", {})}
    config["macro-paths"] = ["macros", "of_fluvial"]
    place.write_text(yaml.safe_dump(config), encoding="utf-8")
    (place.parent / "of_fluvial").mkdir()
    shutil.copy(Path(__file__).with_name(MACROS), place.parent / "of_fluvial")
    return dict(config)
