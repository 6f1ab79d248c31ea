"""Access to non-public members of PySpark, py4j and Spark's JVM; no other package names such a member."""
