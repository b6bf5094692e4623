"""`cicf figure`: figures of what trained networks do, and of how they compare."""

import typer

from cicf.cli.figure_differences import differences
from cicf.cli.figure_gradcam import gradcam
from cicf.cli.figure_tsne import tsne

figure = typer.Typer(
    help="Draw where trained networks look, what they make of images, and how they compare.",
    no_args_is_help=True,
)
figure.command("gradcam")(gradcam)
figure.command("tsne")(tsne)
figure.command("differences")(differences)
