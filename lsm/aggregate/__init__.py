"""The aggregation merge engine and its functions."""
