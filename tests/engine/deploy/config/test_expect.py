"""Rules on rows in a job file."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.checkpoints import _transform_of


def ruled(expect: Any, *, source: dict[str, Any] | None = None, **more: Any) -> PipelineConfig:
    given = {"name": "p", "source": source or {"format": "json"}, "target": "d.t", "checkpoint": "/c", **more}
    return PipelineConfig.model_validate({**given, "expect": expect})


def test_a_text_is_a_condition_and_a_row_that_breaks_it_fails_the_batch() -> None:
    (target,) = ruled({"positive": "amount >= 0", "known": {"condition": "a = b", "on-fail": "warn"}}).outputs
    rules = [rule.rule(name) for name, rule in target.expect.items()]
    assert [(each.name, each.condition, each.on_fail) for each in rules] == [
        ("positive", "amount >= 0", "fail"),
        ("known", "a = b", "warn"),
    ]


def test_each_target_has_the_rules_of_the_pipeline_and_its_own() -> None:
    targets = [{"table": "d.t", "expect": {"own": "b > 0"}}, "d.u"]
    given = ruled({"all": "a > 0"}, targets=targets, target=None)
    assert [list(each.expect) for each in given.outputs] == [["all", "own"], ["all"]]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("amount >=", "not a condition on a row"),
        ("count(*) > 0", "leave out aggregates"),
        ("amount > rand()", "would be decided otherwise"),
        ("at > now()", "would be decided otherwise"),
        ("id IN (SELECT id FROM t)", "leave out aggregates and queries"),
        ("1 = 1", "names a column"),
        ({"condition": "a > 0", "on-fail": "skip"}, "given=skip"),
        ({"condition": "a > 0", "max-count": 3}, "one row is enough to fail the batch"),
        ({"condition": "a > 0", "on-fail": "dead-letter"}, "dead letters have no topic"),
        ({"on-fail": "drop"}, "condition"),
    ],
)
def test_a_rule_that_says_nothing_or_not_the_same_tomorrow_is_refused(rule: Any, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ruled({"r": rule})
    assert words in str(caught.value.errors())


def test_dead_letters_go_to_the_topic_of_the_source() -> None:
    source = {"format": "kafka", "options": {"subscribe": "s", "dead-letter.topic": "bad"}}
    assert ruled({"r": {"condition": "a > 0", "on-fail": "dead-letter"}}, source=source).outputs[0].expect


def test_another_rule_is_another_transform_for_a_plan() -> None:
    one, other, none = ruled({"r": "a > 0"}), ruled({"r": "a > 1"}), ruled({})
    assert len({_transform_of(each) for each in (one, other, none)}) == 3
