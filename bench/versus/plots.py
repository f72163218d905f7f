"""Bars, drawn alike in all figures."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 after the backend is chosen

OURS, OTHERS, YARDSTICK = "#b5462f", "#5b7083", "#c4ccd3"


def bars(names, values, labels, colors, title, path, log=False):
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.32 * len(names)), dpi=110)
    axes.barh(names, values, color=colors)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
    for i, label in enumerate(labels):
        axes.annotate(label, (values[i], i), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def powers(rungs, title, path):
    names, values = zip(*rungs)
    bars(names, values, [f"{value:.0f}" for value in values], [OTHERS] + [OURS] * (len(names) - 1), title, path)
