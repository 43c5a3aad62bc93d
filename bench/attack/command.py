"""The command `ars-bench attack`."""

from pathlib import Path

import click

from ars.command_line import Command

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-bench attack run.sqlite --limit 20",
    ],
)
@click.argument("run", type=FILE)
@click.option("--limit", type=click.IntRange(1), help="Attack at most this many certified inputs. Default: all.")
@click.option("--n", type=click.IntRange(100), default=10_000, show_default=True, help="Draws that confirm a success.")
@click.option(
    "--alpha", type=float, default=1e-6, show_default=True, help="Probability that a success of an input is chance."
)
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Steps of PGD.")
@click.option("--draws", type=click.IntRange(1), default=32, show_default=True, help="Noisy copies behind a gradient.")
@click.option("--restarts", type=click.IntRange(1), default=3, show_default=True, help="Starting points of PGD.")
@click.option(
    "--reach", type=click.FloatRange(1), default=3.0, show_default=True, help="How far to search, in certified radii."
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Repeat the attacks of this seed. Default: random.")
@click.option("--model", type=FILE, help="The model.pt to take gradients from. Default: that of the run's model.")
@click.option("--engine", type=FILE, help="Where the classifier is now. Default: where the run had it.")
@click.option("--data", help="Where the data is now. Default: where the run had it.")
def attack(
    run: Path,
    limit: int | None,
    n: int,
    alpha: float,
    steps: int,
    draws: int,
    restarts: int,
    reach: float,
    seed: int | None,
    model: Path | None,
    engine: Path | None,
    data: str | None,
) -> None:
    """Search for the smallest perturbation that changes the answer at each certified input of a run: an upper bound
    beside the certified radius.

    A success counts only if a test with fresh noise confirms that the smoothed classifier's answer is another one. The
    results are kept beside the run, in RUN.attack.jsonl; the same command again resumes what was stopped. Exit status:
    1 if an attack contradicts a certificate, 2 for bad input.
    """
    from ars.bench.attack.run import Effort, attack_run, evidence_path
    from ars.bench.attack.show import Contradictions, describe_attacks, describe_one
    from ars.engine.records.stored_run import read_run
    from ars.engine.statistics.bounds import check_alpha
    from ars.errors import RunError

    check_alpha(alpha)
    stored = read_run(run)
    settings, attacked = attack_run(
        run,
        Effort(n, alpha, steps, draws, restarts, reach),
        limit=limit,
        seed=seed,
        model=model,
        engine=engine,
        data=data,
        on_input=lambda one: click.echo(describe_one(stored, one), err=True),
    )
    click.echo(describe_attacks(stored, settings, attacked))
    if (found := Contradictions(stored, settings, attacked)).inputs:
        raise RunError(
            f"CONTRADICTION: attacks change the answer inside the certified region of {len(found.inputs)} of "
            f"{found.attacked} inputs ({', '.join(map(str, found.inputs))}); if every certificate were sound, so many "
            f"would have a probability of at most {found.probability:.2g}; see {evidence_path(run, found.inputs[0])}"
        )
