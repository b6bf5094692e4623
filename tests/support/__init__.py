"""Second derivations and small models that several tests use."""
