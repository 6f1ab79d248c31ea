"""How a branch's schema versions are merged into main.

A branch's version ids continue from its origin, and its files refer to them. So when only the branch changed the
schema, main gets the same versions under the same ids; options set at the creation of the branch (such as no log) are
not copied. When only main changed it, the branch's files keep the origin's version. If both did, it is a conflict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.layout.branch_state import BranchOrigin
from filestore.predicate.row_rules import check_rules
from filestore.schema.log_names import check_log_names
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from lsm.errors import ConflictError


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSchemas:
    """Schema versions that main needs before files of a branch can be added."""

    main: TableStore
    origin: BranchOrigin
    is_changed: bool  # whether the branch has versions of its own
    missing: Sequence[TableSchema]  # to be published in this order
    unused: Sequence[TableSchema] = ()  # in main, published by a merge that has not committed, perhaps a dead one

    @property
    def target(self) -> TableStore:
        """Main with the schema that it has afterwards."""
        newest = self.missing[-1] if self.missing else self.main.schemas.latest() or self.main.schema
        return self.main.at_new_version(newest)

    def id_of(self, schema_id: int) -> int:
        """The schema id in main for a file with a schema id of the branch."""
        return schema_id if self.is_changed else min(schema_id, self.origin.schema_id)

    def publish(self, created: list[TableSchema]) -> None:
        """Publish the missing versions in main, and note those that no one had published meanwhile.

        Raises: ConflictError when main's schema changes concurrently.
        """
        for schema in self.missing:
            try:
                self.main.schemas.create(schema)
                created.append(schema)
            except ConflictError:
                if not _is_same(self.main.schemas.read(schema.id), schema):
                    raise _both_changed(self.main, self.origin) from None


def take_back(main: TableStore, created: Sequence[TableSchema]) -> None:
    """Remove versions that were published in main for what was refused then, if no commit or version is on top.

    A commit looks for its schema behind the creation of its snapshot, a version for the one before. So what is not
    seen here, behind the removal, takes itself back. Raises: UnavailableError.
    """
    if not created or _is_built_upon(main, created):
        return
    bodies = {main.paths.schema(each.id): main.schemas.body_of(each) for each in created}
    for path, body in reversed(bodies.items()):
        main.delete_own(path, body)
    if _is_built_upon(main, created):
        for path, body in bodies.items():
            main.io.create_exclusive(path, body)


def _is_built_upon(main: TableStore, created: Sequence[TableSchema]) -> bool:
    newest = main.snapshots.latest()
    is_in_use = newest is not None and newest.schema_id >= created[0].id
    return is_in_use or any(each > created[-1].id for each in main.schemas.ids())


def merged_schemas(
    main: TableStore, branch: TableStore, origin: BranchOrigin, *, keeps_ids: bool = False
) -> MergedSchemas:
    """The schema versions of a branch that main needs.

    Args:
        main: the table on its main branch.
        branch: the table on the other branch.
        origin: origin of that branch.
        keeps_ids: main needs every version of the branch, because snapshots that refer to them will be published.

    Raises:
        ConflictError: both changed the schema.
        InvalidInputError: records in main's log could not be read with these column names.
    """
    own = [branch.schemas.read(each) for each in branch.schemas.ids() if each > origin.first_schema_id]
    if not own:
        _check_constraints(main, branch)
    if not own and not (keeps_ids and origin.first_schema_id > origin.schema_id):
        return MergedSchemas(main=main, origin=origin, is_changed=False, missing=())
    began = branch.schemas.read(origin.schema_id)
    between = range(origin.schema_id + 1, origin.first_schema_id + 1)
    wanted = {each: replace(began, id=each) for each in between}
    wanted |= {each.id: replace(each, options=_options_in_main(each.options, began.options, origin)) for each in own}
    known = [each for each in main.schemas.ids() if each > origin.schema_id]
    for schema_id in known:
        if schema_id not in wanted or not _is_same(main.schemas.read(schema_id), wanted[schema_id]):
            raise _both_changed(main, origin)
    missing = [schema for schema_id, schema in wanted.items() if schema_id not in known]
    _check_names(main, missing)
    newest = main.snapshots.latest()
    used = origin.schema_id if newest is None else max(origin.schema_id, newest.schema_id)
    # an equal change by someone else has another time
    unused = [wanted[each] for each in known if each > used and main.schemas.read(each) == wanted[each]]
    return MergedSchemas(main=main, origin=origin, is_changed=True, missing=missing, unused=unused)


def _options_in_main(options: Mapping[str, str], began: Mapping[str, str], origin: BranchOrigin) -> Mapping[str, str]:
    """A branch's options without those set at its creation."""
    merged = dict(options)
    for key, text in origin.options.items():
        if merged.get(key) == text:
            del merged[key]
            if key in began:
                merged[key] = began[key]
    return merged


def _check_constraints(main: TableStore, branch: TableStore) -> None:
    """Refuse rows of a branch that began before main got a constraint. Raises: ConflictError."""
    newest = main.schemas.latest() or main.schema
    known = {rule.name: rule.condition for rule in check_rules(branch.schemas.latest() or branch.schema)}
    for rule in check_rules(newest):
        if known.get(rule.name) != rule.condition:
            raise ConflictError(
                f"main got a constraint after the branch began, and its rows are not held to it: table={main.name} "
                f"constraint={rule.name} check='{rule.condition}' "
                "fix='drop the constraint, merge, and add it again, which looks at all rows'"
            )


def _check_names(main: TableStore, missing: Sequence[TableSchema]) -> None:
    if not main.has_log:
        return
    history = [main.schemas.read(each) for each in main.schemas.ids()]
    for schema in missing:
        check_log_names(history[-1], schema, history[:-1])
        history.append(schema)


def _is_same(one: TableSchema, other: TableSchema) -> bool:
    return replace(one, time_ms=0) == replace(other, time_ms=0)


def _both_changed(main: TableStore, origin: BranchOrigin) -> ConflictError:
    return ConflictError(
        f"main and the branch both changed the schema: table={main.name} common_schema={origin.schema_id} "
        f"main_schemas={main.schemas.ids()} fix=write the branch's rows to main"
    )
