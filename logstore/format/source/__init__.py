"""Values of a change record, read as the record's schema part says and converted to the types of columns."""
