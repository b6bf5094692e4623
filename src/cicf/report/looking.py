"""What is looked at by runs that are compared, and what their looks come to."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cicf.data.domains import DomainDataset
from cicf.report.chosen import Role, class_names, domain_names, image_name
from cicf.report.focus import Focus, FocusDifference, Glance, focus, focus_differences

Cell = str | float | int


class Scene(NamedTuple):
    """Holds images, and the places of those that are drawn, and of all that are looked at."""

    data: DomainDataset
    drawn: list[int]
    seen: list[int]
    roles: Mapping[str, Role]
    """What the domains were to the runs, where they are of the runs' own data."""

    @property
    def has_classes(self) -> bool:
        """Return whether the true class of every image is known."""
        return bool((self.data.y[self.seen] >= 0).all())

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the domains that are looked at, in the order in which they are shown."""
        return tuple(dict.fromkeys(domain_names(self.data, self.seen)))

    def titled(self, domain: str) -> str:
        """Return a domain with its role."""
        role = self.roles.get(domain, "other")
        return domain if role == "other" else f"{domain} ({role})"


class Focused(NamedTuple):
    """Holds all looks, by run, and what they come to in each domain, where masks are known."""

    glances: Mapping[str, Sequence[Glance]]
    focus: tuple[Focus, ...]
    differences: tuple[FocusDifference, ...]


def focused(scene: Scene, glances: Mapping[str, Sequence[Glance]]) -> Focused:
    """Return what the runs' looks come to, domain by domain."""
    if scene.data.masks is None:
        return Focused(glances, (), ())
    scores, differences = [], []
    for domain in scene.domains:
        number = scene.data.domain_id(domain)
        here = {
            name: [glance for glance in seen if int(scene.data.domain[glance.place]) == number]
            for name, seen in glances.items()
        }
        scores += [focus(name, domain, seen) for name, seen in here.items()]
        differences += focus_differences(here, domain)
    return Focused(glances, tuple(scores), tuple(differences))


def csv_of(scene: Scene, found: Focused) -> tuple[list[str], list[list[Cell]]]:
    """Return the head and the rows of a table with every look, an image a row."""
    names = ("predicted", "probability", "energy inside", "pointing hit")
    head = ["image", "domain", "class", "is drawn", "mask area"]
    head += [f"{run}: {name}" for run in found.glances for name in names]
    known = zip(
        domain_names(scene.data, scene.seen), class_names(scene.data, scene.seen), strict=True
    )
    drawn = set(scene.drawn)
    rows: list[list[Cell]] = []
    for (domain, name), *looks in zip(known, *found.glances.values(), strict=True):
        first = looks[0]
        row: list[Cell] = [image_name(scene.data, first.place), domain, name]
        row += [int(first.place in drawn), _cell(first.area)]
        for look in looks:
            row += [look.predicted, look.probability, _cell(look.energy), _cell(look.hit)]
        rows.append(row)
    return head, rows


def _cell(value: float | None) -> Cell:
    return "" if value is None else value
