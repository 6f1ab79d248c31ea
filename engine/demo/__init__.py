"""The demonstration: flights out of New York in 2013 as a change stream, taken in, read back and checked."""
