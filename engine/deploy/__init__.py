"""Config-driven deployments: job files, and the execution of their pipelines."""
