"""Figures and tables from runs and networks."""

from cicf.report.explain import explained
from cicf.report.gradcam import GridRow, cam_layer, grad_cam, overlay, save_grid

__all__ = ["GridRow", "cam_layer", "explained", "grad_cam", "overlay", "save_grid"]
