"""What Spark finds: the session, ``format("fluvial")`` with its readers and its staged writer."""

from engine.runtime.hidden_pandas import hide_pandas_in_stream_runner

hide_pandas_in_stream_runner()  # before the first Arrow array
