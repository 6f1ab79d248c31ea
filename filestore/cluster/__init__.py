"""An order of rows across the files of a partition, for readers that filter by several columns."""
