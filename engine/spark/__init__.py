"""What Spark finds: the session, ``format("fluvial")`` with its readers and its staged writer."""
