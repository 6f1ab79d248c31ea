"""The snapshot files as the truth about lineage: the store is compared with them, and corrected."""
