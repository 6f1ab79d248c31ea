"""Manifests: entries, lists, files, merging; commit messages. Source: Paimon's package manifest."""
