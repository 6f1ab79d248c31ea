"""What a table is: schemas and their files, validation, merge engine, counted rows."""
