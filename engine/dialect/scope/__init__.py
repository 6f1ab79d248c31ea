"""The context of a statement: names, results, frame cache."""
