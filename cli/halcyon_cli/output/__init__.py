"""Output for terminals: tables, trees and text."""
