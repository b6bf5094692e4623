"""What is said where an optional library is missing."""

from cicf.core import DataError


def needs_extra_data(what: str) -> DataError:
    """Return the error of somebody who has `what`, but not the libraries of the extra `data`."""
    return DataError(f"{what} needs the extra data; install it with: pip install 'cicf[data]'")
