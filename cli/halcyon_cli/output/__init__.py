"""How answers look: tables, trees, text."""
