"""Options, option types and output formats shared by the commands."""
