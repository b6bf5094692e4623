"""Figures and tables from runs and networks."""

from cicf.report.gradcam import GridRow, cam_layer, grad_cam, overlay, save_grid

__all__ = ["GridRow", "cam_layer", "grad_cam", "overlay", "save_grid"]
