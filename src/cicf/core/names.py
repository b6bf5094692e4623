"""Names as people spell them."""

import re


def plain(name: str) -> str:
    """Return a name without what people spell differently: case, spaces, hyphens, underscores."""
    return re.sub(r"[\s_-]", "", name).casefold()
