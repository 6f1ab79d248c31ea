"""Running pipelines: sources, transforms, targets, supervision, health."""
