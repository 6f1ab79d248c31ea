"""System tables by name: ``db.t$files`` and the like, ``db.t$audit_log``, and ``sys.tables`` of a catalog."""
