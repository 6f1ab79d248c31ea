"""The exactly-once log: writer, reader, marker."""
