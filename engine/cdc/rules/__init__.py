"""Pure decisions, which look at no files and no brokers: names, columns of schema parts, cuts."""
