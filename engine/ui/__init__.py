"""A live, read-only console of a warehouse in the browser."""
