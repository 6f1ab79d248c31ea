"""Steps between source and tables: queries over the view ``source``, and functions of frames."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from engine.deploy.config.pipeline_config import TransformConfig
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from lsm.errors import InvalidInputError

SOURCE_VIEW: Final = "source"


def transformed(frame: DataFrame, steps: Sequence[TransformConfig], *, pipeline: str) -> DataFrame:
    """A frame after some steps; each sees the result of the previous one.

    Raises:
        InvalidInputError: a function is missing or returns no frame, or the row kinds are lost.
        PySparkException: Spark rejects a query.
    """
    for step in steps:
        result = _after(frame, step, pipeline)
        if ROW_KIND_COLUMN in frame.columns and ROW_KIND_COLUMN not in result.columns:
            raise InvalidInputError(
                f"the transform loses the row kinds, so that deletes would become inserts: pipeline={pipeline} "
                f"fix=select {ROW_KIND_COLUMN} too, or '+I' AS {ROW_KIND_COLUMN} if all rows are inserts"
            )
        if UNAVAILABLE_COLUMN in frame.columns and UNAVAILABLE_COLUMN not in result.columns:
            raise InvalidInputError(
                f"the transform loses the names of values that the source left out, which would become null: "
                f"pipeline={pipeline} fix=select {UNAVAILABLE_COLUMN} too, or set unavailable-values=fail"
            )
        frame = result
    return frame


def function_named(name: str) -> Callable[[DataFrame], Any]:
    """The function ``module:function``. Raises: InvalidInputError."""
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name, None)
    except ImportError as error:
        raise InvalidInputError(
            f"module of a transform cannot be imported: module={module_name} reason={error} "
            "fix=install it, or run the command in its directory"
        ) from error
    if not callable(found):
        raise InvalidInputError(
            f"no such function: module={module_name} function={function_name} fix=correct transform.python"
        )
    return found  # type: ignore[no-any-return]


def _after(frame: DataFrame, step: TransformConfig, pipeline: str) -> DataFrame:
    if step.sql is not None:
        frame.createOrReplaceTempView(SOURCE_VIEW)
        return frame.sparkSession.sql(step.sql)  # the view stays: dropping it would uncache the frame
    result = function_named(step.python or "")(frame)
    if not isinstance(result, DataFrame):
        raise InvalidInputError(
            f"a transform returns a frame: pipeline={pipeline} function={step.python} "
            f"returned={type(result).__name__} fix=return a DataFrame"
        )
    return result
