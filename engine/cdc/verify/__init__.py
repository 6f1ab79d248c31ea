"""Whether tables equal the live database that they follow: counts and hashes of ranges, then keys, then values."""
