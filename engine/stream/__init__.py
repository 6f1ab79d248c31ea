"""``spark.readStream.format("fluvial")``: the hybrid source. A snapshot first, then the log from exactly its offsets.

position    the delivered part of the table, as stored in Spark's checkpoint
plan        the end of a batch, and the steps between two positions: pure
history     the snapshots that a plan needs
options     the user's options; start, beginning: where a stream begins
watch       the current table and log; loss: when needed data was removed; lag: data not yet delivered
schemas     the schema changes that a stream can follow
place       the progress that the table keeps for a stream with a consumer-id
partitions  which task reads what; rows: what a task does; normalizer: exact kinds by look-up
reader      the interface to Spark
"""
