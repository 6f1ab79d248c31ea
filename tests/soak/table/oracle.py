"""What a table must show, by the journals of all that worked on it.

Snapshots of a table have an order, and who wrote one was answered its number: so what each of them must show is known,
but for what killed processes may have written. A rollback for good uses numbers again, so it ends a chapter: what
overlaps with it may be on either side.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.soak.table.journal import Deed
from tests.soak.table.kinds import GROUPS, Kind, Seen

FOREVER: Final = 2**63
ANY: Final = -1
"""A snapshot whose number is not known."""


@dataclass(frozen=True, slots=True)
class State:
    """What a snapshot must show, by group."""

    base: Mapping[int, Seen] = field(default_factory=dict)
    added: Mapping[int, frozenset[int]] = field(default_factory=dict)
    maybe: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def differences(self, kind: Kind, seen: Mapping[int, Seen], *, is_settled: bool) -> list[str]:
        """What should not be as it is seen; ``is_settled``: everything is compacted."""
        found = []
        for group in sorted({*self.base, *self.added, *self.maybe, *seen}):
            base, added, maybe = (each.get(group) for each in (self.base, self.added, self.maybe))
            certain, open_ = added or frozenset(), maybe or frozenset()
            if kind.is_lazy and not is_settled:
                certain, open_ = frozenset(), certain | open_
            if not kind.fits(seen.get(group), base, certain, open_):
                found.append(
                    f"group={group} seen={seen.get(group)} base={base} added={sorted(certain)} maybe={sorted(open_)}"
                )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One batch, however often it was tried."""

    group: int
    batch: int
    began: int
    ended: int
    snapshot_id: int | None  # None: it is not known whether it is there
    may_be_older: bool = False  # a try before may have published it
    is_merged: bool = False  # a merge published it, perhaps with other batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The table between two rollbacks for good, or looks at it while nobody worked."""

    opened: int = 0  # when what made it began: a commit in between is on either side
    began: int = 0
    ended: int = FOREVER  # when the next one began to be
    first_id: int = 0  # it begins with this snapshot
    state: State = State()


class Oracle:
    """Of one table."""

    def __init__(self, kind: Kind, deeds: Iterable[Deed], looks: Iterable[Deed]) -> None:
        """``looks``: at the whole table, each with all processes stopped."""
        self.kind = kind
        self.deeds = sorted(deeds, key=lambda deed: deed.began)
        self.commits = list(_commits(self.deeds))
        self._restores = [deed for deed in self.deeds if deed.what == "restore" and deed.is_done and "id" in deed.facts]
        self.chapters = [Chapter()]
        ends = [deed for deed in self.deeds if deed.what == "roll back" and deed.is_done and deed.facts["gone"]]
        for deed in sorted([*ends, *looks], key=lambda deed: deed.began):
            if deed.what == "look":
                self._begin(deed, deed.facts["id"] or 0, State(base=deed.facts["seen"]))
            else:
                self._begin(deed, deed.facts["to"], self.state(deed.facts["to"], began=deed.began, ended=deed.began))

    def _begin(self, deed: Deed, first_id: int, state: State) -> None:
        unsure = [each for each in self.deeds if _is_unsure(each) and each.began < deed.began]
        last = self.chapters[-1]
        before = min([deed.began, *(each.began for each in unsure if each.began >= last.began)])
        self.chapters[-1] = replace(last, ended=before)
        self.chapters.append(Chapter(opened=deed.began, began=deed.ended, first_id=first_id, state=state))

    def chapter_at(self, began: int, ended: int) -> Chapter | None:
        """The chapter that lasted all the time; None: there is none."""
        return next((each for each in self.chapters if each.began <= began and ended <= each.ended), None)

    def state(self, snapshot_id: int, *, began: int, ended: int) -> State:
        """What a snapshot must show to who looked between two times, in one chapter."""
        current = self.chapter_at(began, ended)
        assert current is not None, "two chapters"
        until = self.chapters.index(current)
        chapter = next(
            each for each in reversed(self.chapters[: until + 1]) if each.first_id <= snapshot_id or not each.began
        )
        if chapter is not current:
            ended = self.chapters[self.chapters.index(chapter) + 1].began
        base, after = chapter.state, chapter.first_id
        for deed in self._restores:
            if _is_within(deed, chapter) and after < deed.facts["id"] <= snapshot_id:
                base, after = self.state(deed.facts["to"], began=deed.began, ended=deed.began), deed.facts["id"]
        added = {group: set(batches) for group, batches in base.added.items()}
        maybe = {group: set(batches) for group, batches in base.maybe.items()}
        for commit in self.commits:
            if commit.began >= ended or commit.ended <= chapter.opened:
                continue
            is_restored = commit.may_be_older and any(deed.ended > commit.began for deed in self._restores)
            if commit.snapshot_id is None or not _is_within(commit, chapter) or is_restored:
                maybe.setdefault(commit.group, set()).add(commit.batch)
            elif after < commit.snapshot_id <= snapshot_id:
                added.setdefault(commit.group, set()).add(commit.batch)
            elif commit.may_be_older:
                maybe.setdefault(commit.group, set()).add(commit.batch)
        return State(base.base, _frozen(added), _frozen(maybe))

    # ---- what is wrong

    def problems(self) -> Iterator[str]:
        """What was seen while everything ran and should not have been."""
        for deed in self.deeds:
            if deed.is_done and deed.what in ("read", "read tag", "read savepoint") and "seen" in deed.facts:
                yield from self._of_read(deed)
        yield from self._of_order()

    def _of_read(self, deed: Deed) -> Iterator[str]:
        chapter = self.chapter_at(deed.began, deed.ended)
        if chapter is None:
            return
        snapshot_id, seen = deed.facts["id"] or 0, deed.facts["seen"]
        for each in self.state(snapshot_id, began=deed.began, ended=deed.ended).differences(
            self.kind, seen, is_settled=False
        ):
            yield f"a read is wrong: slot={deed.slot} what={deed.what} snapshot={snapshot_id} at={deed.began} {each}"
        if deed.facts.get("is_newest"):
            known = [each for each in self.commits if _is_within(each, chapter) and each.ended < deed.began]
            newest = max((each.snapshot_id for each in known if each.snapshot_id is not None), default=0)
            if snapshot_id < newest:
                yield f"a read is behind an acknowledged commit: slot={deed.slot} read={snapshot_id} commit={newest}"

    def _of_order(self) -> Iterator[str]:
        """Acknowledged commits have numbers of their own, rising with time."""
        for chapter in self.chapters:
            known = [each for each in self.commits if each.snapshot_id is not None and _is_within(each, chapter)]
            known = [each for each in known if not each.may_be_older and not each.is_merged]
            numbers = [each.snapshot_id for each in known]
            yield from (
                f"two commits have one number: snapshot={number}" for number in {*numbers} if numbers.count(number) > 1
            )

    # ---- tags and savepoints

    def tags(self) -> dict[str, set[int | None]]:
        """By name, at which snapshots a tag may be at the end; None: there may be none."""
        found: dict[str, set[int | None]] = {}
        for deed in self.deeds:
            name = deed.facts.get("name", "")
            if deed.what in ("tag", "retag") and deed.may_be_done:
                known: set[int | None] = {deed.facts["id"]} if deed.is_done else {ANY, *found.get(name, {None})}
                found[name] = known | self._undone(deed, known)
            elif deed.what == "rename tag" and deed.may_be_done:
                was, target = found.get(name, {None}), deed.facts["target"]
                found[target] = was if deed.is_done else {None, *was}
                found[name] = {None} if deed.is_done else {None, *was}
            elif deed.what == "untag" and deed.may_be_done:
                found[name] = {None} if deed.is_done else {None, *found.get(name, set())}
        return found

    def savepoints(self) -> dict[int, set[int | None]]:
        """By number, see ``tags``."""
        found: dict[int, set[int | None]] = {}
        for deed in self.deeds:
            if deed.what == "save" and deed.is_done:
                known: set[int | None] = {deed.facts["id"]}
                found[deed.facts["number"]] = known | self._undone(deed, known)
            elif deed.what == "unsave" and deed.may_be_done:
                number = deed.facts["number"]
                found[number] = {None} if deed.is_done else {None, *found.get(number, set())}
        return found

    def _undone(self, deed: Deed, known: Iterable[int | None]) -> set[int | None]:
        """Whether it may be gone without being deleted: by its retention, or by a rollback to before it."""
        if deed.facts.get("retained"):
            return {None}
        newest = max(FOREVER if each in (None, ANY) else each for each in known)  # type: ignore[type-var]
        for each in self.deeds:
            is_later = each.what == "roll back" and each.may_be_done and each.ended > deed.began
            if is_later and newest > each.facts.get("to", 0):
                return {None}
        return set()

    def branch_state(self, name: str) -> State | None:
        """What a branch must show at the end; None: where it began is not known."""
        made = next((deed for deed in self.deeds if deed.what == "branch" and deed.facts["name"] == name), None)
        if made is None or not made.is_done or self.chapter_at(made.began, made.ended) is None:
            return None
        state = self.state(made.facts["id"], began=made.began, ended=made.ended)
        added, maybe = ({group: set(each) for group, each in kept.items()} for kept in (state.added, state.maybe))
        for deed in self.deeds:
            if deed.what == "branch write" and deed.facts["name"] == name and deed.may_be_done:
                target = added if deed.is_done else maybe
                target.setdefault(_group(deed), set()).add(deed.facts["batch"])
        return State(state.base, _frozen(added), _frozen(maybe))


def _commits(deeds: Sequence[Deed]) -> Iterator[Commit]:
    """The batches of writers, and those of branches that were merged."""
    tries: dict[tuple[int, int], list[Deed]] = {}
    for deed in deeds:
        if deed.what == "write" and deed.may_be_done:
            tries.setdefault((deed.facts["writer"], deed.facts["batch"]), []).append(deed)
    for (_, batch), of_batch in tries.items():
        done = next((each for each in of_batch if each.is_done), None)
        yield Commit(
            group=_group(of_batch[0]),
            batch=batch,
            began=of_batch[0].began,
            ended=max(each.ended for each in of_batch),
            snapshot_id=None if done is None else done.facts["id"],
            may_be_older=len(of_batch) > 1,
        )
    merges = [deed for deed in deeds if deed.what == "merge" and deed.may_be_done]
    has_rollbacks = any(deed.what in ("roll back", "restore") for deed in deeds)
    for deed in deeds:
        if deed.what != "branch write" or not deed.may_be_done:
            continue
        later = [each for each in merges if each.facts["name"] == deed.facts["name"] and each.ended > deed.began]
        if not later:
            continue
        is_known = deed.is_done and later[0].is_done and later[0].facts.get("id") and not has_rollbacks
        yield Commit(
            group=_group(deed),
            batch=deed.facts["batch"],
            began=later[0].began,
            ended=later[0].ended if is_known else FOREVER,
            snapshot_id=later[0].facts["id"] if is_known else None,
            is_merged=True,
        )


def _group(deed: Deed) -> int:
    return int(deed.facts["writer"]) * GROUPS + int(deed.facts["batch"]) % GROUPS


def _is_within(each: Deed | Commit, chapter: Chapter) -> bool:
    return chapter.began <= each.began and each.ended <= chapter.ended


def _is_unsure(deed: Deed) -> bool:
    """Whether everyone's rows may be others since then, or not."""
    return deed.what in ("roll back", "restore") and deed.may_be_done and not deed.is_done


def _frozen(groups: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    return {group: frozenset(batches) for group, batches in groups.items()}
