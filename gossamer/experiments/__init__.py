"""Recipes for the paper's experiments."""
