"""A table in LaTeX, with the rules of booktabs."""

from cicf.report.grid import Grid, Item, Line

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after a line break, a bracket would be read as its length
    "]": "{]}",
    "*": r"\textasteriskcentered{}",
    "±": r"$\pm$",
    "–": "--",
    "θ": r"$\theta$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
}


def latex(grid: Grid) -> str:
    """Return a table environment with its footnotes below; it needs the package booktabs."""
    columns = f"l{'r' * (len(grid.head) - 1)}"
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[htb]",
        r"\centering",
        rf"\caption{{{escaped(grid.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line([escaped(name) for name in grid.head]),
        r"\midrule",
        *(_line([_label(line), *map(_item, line.items)]) for line in grid.lines),
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
        *(rf"{escaped(note)}\par" for note in grid.notes("bold")),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text in which nothing is a command."""
    return "".join(_sign(each) for each in text)


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    # A line break in a name would end a paragraph inside of a caption.
    return sign if sign.isprintable() else " "


def _line(fields: list[str]) -> str:
    return f"{' & '.join(fields)} \\\\"


def _label(line: Line) -> str:
    return escaped(line.label) if line.kind == "ours" else rf"\quad {escaped(line.label)}"


def _item(item: Item) -> str:
    # A hyphen before a number is a minus.
    text = rf"$-${escaped(item.text[1:])}" if item.text.startswith("-") else escaped(item.text)
    text = text.replace("{[}-", "{[}$-$").replace(", -", ", $-$")
    mean, gap, interval = text.partition(" {[}")
    if gap:
        # Beside each other, four domains would be wider than a page.
        text = rf"\shortstack[r]{{{mean}\\{{[}}{interval}}}"
    return rf"\textbf{{{text}}}" if item.is_best else text
