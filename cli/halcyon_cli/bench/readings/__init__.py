"""What is read beside a measured copy, and by whom: metrics by its client, usage of pods and prices by the command."""
