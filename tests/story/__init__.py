"""A first week with the command line: each mistake of a new user, with the line that answers it."""
