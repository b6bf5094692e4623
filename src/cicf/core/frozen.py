"""Values that a user may write in a file or on the command line."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Is the parent of configs and records: fixed once made, and refusing names it does not know.

    The docstring below a field is its description.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        ser_json_inf_nan="strings",
    )
