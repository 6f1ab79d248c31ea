"""Other versions of a table's rows: branches, and how what was written on one is checked and published."""
