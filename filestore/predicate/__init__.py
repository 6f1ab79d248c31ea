"""Filters: nodes, parser, evaluation on rows and on statistics. Source: Paimon's package predicate."""
