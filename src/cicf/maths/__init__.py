"""The paper's mathematics in torch alone: one module per subject, one function per equation."""
