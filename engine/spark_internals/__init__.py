"""What is not public in PySpark, py4j and Spark's JVM. No other package names a member of it."""
