"""What a reader asks for, parsed into values: state, branch, commit to wait for."""
