"""Commands for the installation of Halcyon: `halcyon version`, `dashboard` and `images`."""
