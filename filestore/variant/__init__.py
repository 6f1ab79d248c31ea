"""Values of the type VARIANT: their encoding, and putting together those whose parts are columns."""
