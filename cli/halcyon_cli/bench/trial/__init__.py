"""Points of a tuning, measured in a trial pod whose server changes its configuration in place."""
