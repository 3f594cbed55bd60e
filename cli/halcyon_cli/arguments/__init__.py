"""Options, their types and output formats that commands share."""
