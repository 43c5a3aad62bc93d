"""The paper's Table 3, from the tables that `ars-bench paper` wrote for each attack."""

from collections.abc import Mapping

from ars.bench.paper.tables import markdown_table
from ars.bench.reproduce.files import Folder
from ars.bench.reproduce.presets import ATTACKS

__all__ = ["show_attacks"]


def show_attacks(folder: Folder) -> str:
    """The tables of the attacks that have been made, which of them hurts most, and the time of the noise generator."""
    texts = {
        title: folder.table(attack).read_text() for attack, title in ATTACKS.items() if folder.table(attack).exists()
    }
    if not texts:
        return f"Not made yet: it needs {' and '.join(model.name for model in folder.preset.attacked)}."
    tables, theirs = dict[str, str](), ""
    for title, text in texts.items():
        section = text.partition("## After an attack\n\n")[2].partition("\n## ")[0]
        tables[title], heading, published_rows = section.partition("\nThe paper's Table 3")
        theirs = f"{heading.strip()}{published_rows}"  # the same in each, like the times
        timed = text.partition("## The noise generator's time\n\n")[2]
    found = [_compare(tables)] if len(tables) > 1 else []
    found += [f"### {title}\n\n{table}" for title, table in tables.items()]
    return "\n".join([*found, theirs, f"## Section 7.2: the noise generator's time\n\n{timed}"])


def _compare(tables: Mapping[str, str]) -> str:
    """Certified accuracy at radius 0, before and after each attack, of the models that all tables have."""
    shares: dict[str, dict[str, str]] = {}
    for title, table in tables.items():
        for line in table.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) > 7 and cells[6] in ("before", "PGD"):
                shares.setdefault(cells[0], {})["before" if cells[6] == "before" else title] = cells[7]
    heads = ["before", *tables]
    rows = [
        [model, *(found[head] for head in heads), min(tables, key=lambda title: float(found[title]))]
        for model, found in shares.items()
        if found.keys() == set(heads)
    ]
    return (
        "Certified accuracy in percent at radius 0, before and after each attack on the inputs. (Isotropic noise has "
        "no generator; there, the attack through it is that on the expected loss.)\n\n"
        f"{markdown_table(['model', *heads, 'what hurts most'], rows)}\n"
    )
