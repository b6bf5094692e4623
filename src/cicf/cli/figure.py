"""`cicf figure`: figures of what trained networks do, as the paper has them."""

import typer

from cicf.cli.figure_gradcam import gradcam
from cicf.cli.figure_tsne import tsne

figure = typer.Typer(
    help="Draw where trained networks look, and what they make of images.", no_args_is_help=True
)
figure.command("gradcam")(gradcam)
figure.command("tsne")(tsne)
