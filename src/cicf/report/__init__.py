"""Figures and tables from runs and networks; each module loads what it needs, and no more."""
