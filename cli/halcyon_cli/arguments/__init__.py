"""Options, option types and output formats that several commands share."""
