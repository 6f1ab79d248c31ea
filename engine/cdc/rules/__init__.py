"""What is decided without looking at files or brokers: names, columns of schema parts, cuts."""
