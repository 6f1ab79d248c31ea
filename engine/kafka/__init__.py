"""The Spark source ``fluvial-kafka``: Kafka topics as rows."""

from engine.runtime.hidden_pandas import hide_pandas_in_stream_runner

hide_pandas_in_stream_runner()  # before the first Arrow array
