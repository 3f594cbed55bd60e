"""Commands about an installation of Halcyon: `halcyon version`, `dashboard` and `images`."""
