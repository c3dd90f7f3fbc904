"""Primitives under everything: identifiers, errors, and the ports through which code meets the world."""
