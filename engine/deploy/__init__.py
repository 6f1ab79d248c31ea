"""Config-driven deploys: what a job file says, and the run of its pipelines."""
