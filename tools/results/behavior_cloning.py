"""Tables and figures of BC: validation success and decision accuracy."""

from __future__ import annotations

from matplotlib.figure import Figure

from tools.results.formatting import finish_figure, interval, percent, table_of
from tools.results.stored_runs import Run, load_runs


def bc_quickstart() -> str:
    """Return the table of validation success of BC on MiniWoB++."""
    runs = load_runs("bc_quickstart")
    rows = []
    for run in runs:
        steps, values = run.series("validation/success")
        best = max(range(len(values)), key=lambda i: values[i])
        last, highest = percent(values[-1]), percent(values[best])
        updates = str(len(run.metrics))
        rows.append([run.commit, bc_options(run), updates, last, highest, str(steps[best])])
    header = ["commit", "options", "updates", "success, last, %", "best, %", "best at update"]
    return table_of(header, rows)


def bc_curves() -> Figure:
    """Draw the validation success of BC on MiniWoB++ by update, with one line per run."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplots()
    for run in load_runs("bc_quickstart"):
        steps, values = run.series("validation/success")
        label = run.name.replace("_", ", ")
        axes.plot(steps, [100 * value for value in values], marker="o", ms=3, label=label)
    axes.set_ylim(0, 100)
    return finish_figure(figure, "update", "validation/success, %")


def bc_options(run: Run) -> str:
    """Return the options of a BC run as text."""
    bc = run.config["config"]["bc"]
    rate = bc["optimizer"]["learning_rate"]
    plural = "" if bc["demos_per_task"] == 1 else "s"
    demos = f"{bc['demos_per_task']} demonstration{plural} per task"
    batch = f"batch {bc['batch_episodes']}, {bc['epochs']} epochs"
    return f"{demos}, {batch}, learning rate {rate:g}, seed {run.config['config']['seed']}"


def bc_decisions() -> str:
    """Return the table of decision accuracy of SmolLM2-135M on the shop."""
    runs = load_runs("bc_decisions")
    kinds = ["decisions/train", "decisions/held_out"]
    rows = []
    for run in runs:
        columns = [run.series(kind)[1] for kind in kinds]
        for step, train, held_out in zip(run.series(kinds[0])[0], *columns, strict=True):
            rows.append([run.commit, run.name, str(step), percent(train), percent(held_out)])
    return table_of(["commit", "run", "update", "trained on, %", "held out, %"], rows)


def decisions_and_success(table: str, evaluations: dict[str, str]) -> str:
    """Return the table of decision accuracy and success of the runs stored for it.

    Args:
        table: folder of the runs.
        evaluations: heading of each stored evaluation, which is of the last update.
    """
    rows = []
    for run in load_runs(table):
        kinds = ("decisions/train", "decisions/held_out")
        steps, train = run.series(kinds[0])
        for step, train_value, held_out in zip(steps, train, run.series(kinds[1])[1], strict=True):
            is_last = step == steps[-1]
            success = [
                interval(run.evals[name]) if is_last and name in run.evals else ""
                for name in evaluations
            ]
            rows.append([run.name, str(step), percent(train_value), percent(held_out), *success])
    header = ["run", "update", "decisions, trained on, %", "held out, %"]
    return table_of([*header, *evaluations.values()], rows)
