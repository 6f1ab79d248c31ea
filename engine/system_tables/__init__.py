"""System tables by name: ``db.t$files`` etc., ``db.t$audit_log``, and ``sys.tables`` of a catalog."""
