"""The plan of a recovery by job files: found in the lineage, complete before the first step is done."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from engine.catalog import Catalog
from engine.deploy.config.job_config import JobConfig
from engine.deploy.recovery.corrections import check_corrections
from engine.deploy.recovery.job_files import JobFiles, check_new, job_files_by_job
from engine.lineage.graph.impact import JobPlace, places_behind
from engine.lineage.graph.links import StoredLinks
from engine.lineage.store.entities import split_name
from engine.lineage.store.store import LineageMeta, of_columns
from engine.procedures.checked_lineage import checked_lineage
from engine.procedures.recovery_steps import (
    JobFile,
    Recovery,
    RecoveryStep,
    checking_steps,
    lasting_values,
    preparing_steps,
    publishing_steps,
    recording_steps,
    recovered_tables,
    reviewing_steps,
)
from filestore.branch.branches import list_branches
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRequest:
    """The user's request for a recovery."""

    files: JobFiles
    table: str
    snapshot_id: int  # the newest correct one
    branch: str = "fix"
    is_incremental: bool = False
    corrections: tuple[str, ...] = ()  # statements that write the branch of the table
    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # besides those of the job files
    without: frozenset[str] = frozenset()  # jobs that are left out

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            **asdict(self),
            "files": self.files.to_json(),
            "corrections": list(self.corrections),
            "expected": {table: list(each) for table, each in sorted(self.expected.items())},
            "without": sorted(self.without),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "RecoveryRequest":
        """The inverse of ``to_json``. Raises: KeyError, TypeError for anything else."""
        return cls(
            **{
                **body,
                "files": JobFiles.from_json(body["files"]),
                "corrections": tuple(body["corrections"]),
                "expected": {table: tuple(each) for table, each in body["expected"].items()},
                "without": frozenset(body["without"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan:
    """Everything that a recovery will do, in its order."""

    request: RecoveryRequest
    tables: tuple[str, ...]  # the corrected one first
    main_at: Mapping[str, int]  # newest snapshot of the corrected table when the plan was made
    steps: tuple[RecoveryStep, ...]
    overlays: Mapping[str, str]  # by job file: text of the file to run it with from the publication on
    tag: str  # that the published tables have in common

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "request": self.request.to_json(),
            "tables": list(self.tables),
            "main_at": dict(self.main_at),
            "steps": [each.to_json() for each in self.steps],
            "overlays": dict(self.overlays),
            "tag": self.tag,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "RecoveryPlan":
        """The inverse of ``to_json``. Raises: KeyError, TypeError, ValueError for anything else."""
        return cls(
            request=RecoveryRequest.from_json(body["request"]),
            tables=tuple(body["tables"]),
            main_at=body["main_at"],
            steps=tuple(RecoveryStep.from_json(each) for each in body["steps"]),
            overlays=body["overlays"],
            tag=body["tag"],
        )


def job_catalog(files: JobFiles) -> Catalog:
    """The catalog of the first job file. Raises: InvalidInputError."""
    config = files.load(files.paths[0])
    return Catalog(config.warehouse, options=config.catalog_options)


def plan_recovery(request: RecoveryRequest) -> RecoveryPlan:
    """Find out what a recovery has to do. Nothing is changed.

    Raises:
        InvalidInputError: the catalog records no lineage, or that of commits was deleted; a job is in none of the
            files; another job writes a table, too; the branch or a checkpoint exists; incremental, and a job has no
            barrier that ends at the snapshot; a statement does not write the branch.
        UnavailableError: the lineage store does not answer.
    """
    configs = request.files.load_all()
    catalog = job_catalog(request.files)
    table = catalog.table(request.table)
    check_corrections(request.corrections, request.table, request.branch)
    known = job_files_by_job(request.files, configs, request.branch)
    bare = Recovery(
        table=request.table,
        snapshot_id=request.snapshot_id,
        branch=request.branch,
        is_incremental=request.is_incremental,
        place=("--config", request.files.paths[0]),
    )
    with checked_lineage(table) as checked:
        found = places_behind(StoredLinks(checked.meta), split_name(request.table), request.snapshot_id)
        places = [each for each in found if each.job not in request.without and not _is_gone(catalog, each)]
        _check_all_known(places, known, request.files)
        files = {each.job: known[each.job] for each in places}
        tables = recovered_tables(bare, places, files)
        checked.refuse_missing(tables, without=request.without)
        _check_sources(places, files, tables)
        _check_writers(checked.meta, tables, {*files, *request.without})
    _check_free(catalog, tables, request.branch)
    check_new(list(files.values()))
    stores = {name: catalog.table(name).store for name in tables}
    logged = frozenset(name for name, store in stores.items() if store.options.log_system != "none")
    recovery = Recovery(**{**_fields(bare), "logged": logged})
    corrections = [recovery.correction(number) for number, _ in enumerate(request.corrections, 1)]
    return RecoveryPlan(
        request=request,
        tables=tuple(tables),
        main_at={request.table: table.store.snapshots.latest_id() or 0},
        steps=(
            *preparing_steps(recovery, places, files, request.corrections),
            *reviewing_steps(recovery, tables),
            *checking_steps(recovery, _expected(request, configs, tables)),
            *publishing_steps(recovery, tables),
            *recording_steps(recovery, tables, [*files, *map(recovery.new_name, files), *corrections], list(files)),
        ),
        overlays=_overlays(recovery, files),
        tag=recovery.tag,
    )


def _fields(recovery: Recovery) -> dict[str, Any]:
    return {
        "table": recovery.table,
        "snapshot_id": recovery.snapshot_id,
        "branch": recovery.branch,
        "is_incremental": recovery.is_incremental,
        "place": recovery.place,
    }


def _is_gone(catalog: Catalog, place: JobPlace) -> bool:
    """Whether nothing is left of what a job wrote, as of a validation on a temporary branch."""
    return bool(place.targets) and not any(catalog.table_exists(".".join(name)) for name in place.targets)


def _check_all_known(places: Sequence[JobPlace], files: Mapping[str, JobFile], given: JobFiles) -> None:
    unknown = [each.job for each in places if each.job not in files]
    if unknown:
        raise InvalidInputError(
            f"jobs read what is to be recovered, and are pipelines of no job file: jobs={','.join(unknown)} "
            f"files={','.join(given.paths)} fix='name their job files as well, or leave them out: "
            f"{' '.join(f'--without {each}' for each in unknown)}'"
        )


def _check_sources(places: Sequence[JobPlace], files: Mapping[str, JobFile], tables: Sequence[str]) -> None:
    """A pipeline reads one table as a stream; others, read beside it, cannot be given a branch."""
    for place in places:
        beside = {".".join(name) for name in place.sources} & set(tables) - {files[place.job].source_table}
        if beside:
            raise InvalidInputError(
                f"the job reads tables beside its stream that are recovered, too: job={place.job} "
                f"tables={','.join(sorted(beside))} fix='recover it by the steps of recovery-plan, and leave it "
                f"out here: --without {place.job}'"
            )


def _check_writers(meta: LineageMeta, tables: Sequence[str], known: set[str]) -> None:
    """Refuse to compute a table again to which other jobs wrote, because their rows would be lost."""
    for table in tables[1:]:
        database, name = split_name(table)
        writers = {each.job for each in meta.sink_table_lineages(of_columns(database=database, table=name))}
        if writers - known:
            others = sorted(writers - known)
            raise InvalidInputError(
                f"another job writes the table, and its rows would be lost: table={table} jobs={','.join(others)} "
                f"fix='if that is right: {' '.join(f'--without {each}' for each in others)}'"
            )


def _check_free(catalog: Catalog, tables: Sequence[str], branch: str) -> None:
    for table in tables:
        if any(each.name == branch for each in list_branches(catalog.table(table).store)):
            raise InvalidInputError(
                f"branch exists already: table={table} branch={branch} fix=choose another --branch, or delete it first"
            )


def _expected(
    request: RecoveryRequest, configs: Mapping[str, JobConfig], tables: Sequence[str]
) -> dict[str, list[str]]:
    unknown = sorted(set(request.expected) - set(tables))
    if unknown:
        known = names_text("recovered_tables", unknown[0], tables)
        raise InvalidInputError(f"a condition is about a table that is not recovered: table={unknown[0]} {known}")
    found: dict[str, list[str]] = {}
    for table in tables:
        conditions = [
            each for config in configs.values() if table in config.tables for each in config.tables[table].expect
        ]
        conditions += request.expected.get(table, ())
        if conditions:
            found[table] = list(dict.fromkeys(conditions))
    return found


def _overlays(recovery: Recovery, files: Mapping[str, JobFile]) -> dict[str, str]:
    """Overlays of the job files: the new names and checkpoints of their pipelines."""
    found: dict[str, dict[str, Any]] = {}
    for job, file in files.items():
        pipeline = found.setdefault(file.file, {}).setdefault(file.pipeline, {})
        for key, value in lasting_values(recovery, job, file).items():
            *sections, last = _path(key)
            place = pipeline
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
    return {path: yaml.safe_dump({"pipelines": each}, sort_keys=False) for path, each in found.items()}


def _path(key: str) -> list[str]:
    """``source.options.pipeline.name`` as keys; below ``options`` is one key."""
    before, mark, option = key.partition("options.")
    return [*(each for each in before.split(".") if each), *(["options", option] if mark else [])]
