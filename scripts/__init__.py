"""The command line; no logic that another part could need."""
