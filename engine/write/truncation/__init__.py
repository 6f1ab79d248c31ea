"""A truncate of the source among the rows of a micro-batch: the table is emptied, and gets the later rows."""
