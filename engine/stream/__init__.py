"""``spark.readStream.format("fluvial")``: the hybrid source. A snapshot first, then the log from exactly its offsets.

position    what was delivered, as Spark's checkpoint keeps it
plan        where a batch ends, and what lies between two positions: pure
history     the snapshots that a plan asks about
options     what a user chose; start: where a stream begins
watch       the table and its log as they are now; loss: when something needed is gone; lag: how far behind
schemas     which changes of the table's schema it crosses
place       what the table knows of a stream with a consumer-id
partitions  which task reads what; rows: what a task does; normalizer: exact kinds by look-up
reader      what Spark calls
"""
