"""What a statement runs in: context, names, results, frame cache."""
