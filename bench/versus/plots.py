"""Figures, drawn alike. They take numbers and texts, and know of no case."""

import math
import textwrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 after the backend is chosen
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator  # noqa: E402
from PIL import Image  # noqa: E402 comes with matplotlib

OURS, OTHERS, YARDSTICK, LOSS = "#b5462f", "#5b7083", "#c4ccd3", "#8c1d40"
CURVES = ("#b5462f", "#2f6f8f", "#c98a1b", "#5a7d3a", "#6d5a8c")
WIDTH = 9.2  # inches of a figure of its own; curves stand side by side
MARKERS = ("o", "s", "^", "D", "v")
plt.rcParams.update({
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.labelsize": 9, "axes.labelcolor": "#444", "axes.edgecolor": "#888", "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
    "xtick.color": "#444", "ytick.color": "#444", "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8,
    "legend.frameon": False, "savefig.dpi": 150})


def save(figure, path):
    figure.savefig(path)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)  # a third of the size, and as good


def headline(figure, title):
    """Over the whole width, not over the axes alone: names of rows leave little of it."""
    title = "\n".join(textwrap.fill(line, 100) for line in title.splitlines())
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")


def short(value):
    """A tick: 64, 0.5, 16K."""
    return f"{value / 1024:g}K" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def ticks(axis, values, names=None):
    axis.set_ticks(values, names or [short(value) for value in values])
    axis.set_minor_locator(NullLocator())


# ---- Bars ----------------------------------------------------------------------------------------

def bars(names, values, labels, colors, title, path, log=False):
    figure, axes = plt.subplots(figsize=(WIDTH, 0.8 + 0.25 * len(names)), layout="constrained")
    axes.barh(names, values, color=colors, height=0.72)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
        axes.set_xlim(left=min(values) / 2.5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    for i, label in enumerate(labels):
        axes.annotate(label, (values[i], i), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    right = max(values)
    axes.set_xlim(right=right * (right / axes.get_xlim()[0]) ** 0.12 if log else 1.12 * right)
    axes.margins(y=0.02)
    axes.tick_params(axis="y", length=0)
    headline(figure, title)
    save(figure, path)


def powers(rungs, title, path):
    names, values = zip(*rungs)
    bars(names, values, [f"{value:.0f}" for value in values], [OTHERS] + [OURS] * (len(names) - 1), title, path)


def factors(groups, title, path):
    """groups: (heading, rows), rows: (name, factor, factors of yardsticks). Bars begin at 1: to the left are losses."""
    height = 1.1 + 0.18 * sum(len(rows) + 1.5 for _, rows in groups)
    figure, axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")
    everything = [1.0, *(x for _, rows in groups for _, factor, others in rows for x in (factor, *others))]
    low, high = min(0.9, min(everything)) / 1.12, max(1.2, max(everything)) * 1.12
    y, names = 0.0, []
    for heading, rows in groups:
        names.append((y, heading))
        for name, factor, others in rows:
            y += 1
            names.append((y, name))
            color, dark, weight = (OURS, "#222", "normal") if factor >= 1 else (LOSS, LOSS, "bold")
            axes.barh(y, factor - 1, left=1, height=0.7, color=color)
            axes.scatter(others, [y] * len(others), s=15, fc="white", ec="#777", linewidths=0.9, zorder=3)
            axes.annotate(f"{factor:.2f}x", (1, y), xycoords=axes.get_yaxis_transform(), xytext=(40, 0),
                          textcoords="offset points", va="center", ha="right", fontsize=8, color=dark, weight=weight)
        y += 1.5
    axes.set(xscale="log", xlim=(low, high), ylim=(y - 0.8, -0.8))
    ticks(axes.xaxis, [x for x in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200) if low <= x <= high])
    axes.set_yticks([y for y, _ in names], [name for _, name in names], fontsize=8)
    headings = {heading for heading, _ in groups}
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in headings else "normal")
    axes.axvline(1, color="#444", linewidth=0.9)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", top=True, labeltop=True)
    headline(figure, title)
    save(figure, path)


# ---- The roofline --------------------------------------------------------------------------------

def meet(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def place(axes, points, width, height):
    """The middle of a text of that many pixels beside each point: near, upon no other text and no point."""
    at = [tuple(axes.transData.transform(point)) for point in points]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at]
    frame = axes.bbox
    places = []
    for x, y in at:
        options = [(x + reach * dx, y + reach * dy) for reach in (14, 22, 32, 44, 58, 74)
                   for dx, dy in ((0, -1), (0.8, -0.7), (-0.8, -0.7), (1, 0), (-1, 0), (0.8, 0.7), (-0.8, 0.7), (0, 1))
                   if frame.contains(x + 1.2 * reach * dx, y + 1.2 * reach * dy)]
        boxes = [(a - width / 2, b - height / 2, a + width / 2, b + height / 2) for a, b in options]
        free = [i for i, box in enumerate(boxes) if not any(meet(box, other) for other in taken)]
        best = (free or [0])[0]
        taken.append(boxes[best])
        places.append(options[best])
    return places


def roofline(points, peak, bandwidth, title, path):
    """points: (family, name, operations a byte, GFLOP/s, share of the roof). Numbered; the names stand beside."""
    points = sorted(points, key=lambda point: point[2])
    families = sorted({point[0] for point in points})
    figure, (axes, side) = plt.subplots(1, 2, figsize=(WIDTH, 4.9), width_ratios=(1.9, 1), layout="constrained")
    ridge = peak / bandwidth
    left, right = min(ridge / 10, *(p[2] / 2 for p in points)), max(4 * ridge, *(p[2] * 2 for p in points))
    bottom = min(peak / 100, *(p[3] / 2 for p in points))
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, 2 * max(peak, *(p[3] for p in points))))
    axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color="#333", linewidth=1.4)
    axes.fill_between([left, ridge, right], [left * bandwidth, peak, peak], bottom, color="#f4f1ec", zorder=0)
    axes.annotate(f"{peak:.0f} GFLOP/s", (right, peak), xytext=(-4, 4), textcoords="offset points", ha="right")
    axes.grid(which="major")
    axes.set(xlabel="floating-point operations for each byte of inputs and outputs", ylabel="GFLOP/s", title=title)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_locator(NullLocator())
    figure.canvas.draw()  # the layout is known from here on
    figure.set_layout_engine("none")
    (x0, y0), (x1, y1) = axes.transData.transform([(left, left * bandwidth), (ridge, peak)])
    slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
    middle = math.sqrt(max(left, bottom / bandwidth) * ridge)
    axes.annotate(f"read {bandwidth:.0f} GB/s", (middle, middle * bandwidth), xytext=(-6, 6), ha="center", va="center",
                  textcoords="offset points", rotation=slope, rotation_mode="anchor")
    where = axes.transData.inverted().transform(place(axes, [point[2:4] for point in points], 14, 12))
    thread = dict(arrowstyle="-", color="#bbb", linewidth=0.5, shrinkA=4, shrinkB=2)
    side.axis("off")
    for i, (family, name, x, y, share) in enumerate(points):
        kind = families.index(family)
        axes.scatter([x], [y], s=26, color=CURVES[kind], marker=MARKERS[kind], zorder=3)
        axes.annotate(str(i + 1), (x, y), xytext=where[i], textcoords="data", ha="center", va="center", fontsize=7.5,
                      color=CURVES[kind], arrowprops=thread, zorder=2)
        line = 1 - (i + 1.5) / max(len(points) + 2, 22)
        for at, align, text in ((0.06, "right", i + 1), (0.09, "left", name), (1, "right", f"{100 * share:.0f} %")):
            side.text(at, line, text, transform=side.transAxes, ha=align, va="center", fontsize=8, color=CURVES[kind])
    side.text(1, 1, "of its roof", transform=side.transAxes, ha="right", va="center", fontsize=8, color="#444")
    save(figure, path)


# ---- Curves --------------------------------------------------------------------------------------

def lines(curves, title, x_label, y_label, path, log_x=True, log_y=False, dashed=(), x_ticks=None, percent=""):
    """curves: {label: [(x, y)]}; those in `dashed` are limits, not measurements. percent: the axes that are shares."""
    figure, axes = plt.subplots(figsize=(WIDTH / 2, 3.2), layout="constrained")
    solid = [label for label in curves if label not in dashed]
    for label, points in curves.items():
        xs, ys = zip(*points)
        if label in dashed:
            axes.plot(xs, ys, "--", color="#999", linewidth=1.1, label=label, zorder=1)
        else:
            i = solid.index(label)
            axes.plot(xs, ys, color=CURVES[i], marker=MARKERS[i], markersize=4, linewidth=1.5, label=label)
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    for axis, is_log in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        shares = axis.axis_name in percent
        axis.set_major_formatter(FuncFormatter(lambda x, _, shares=shares: f"{100 * x:g} %" if shares else f"{x:g}"))
        if is_log:
            axis.set_minor_formatter(NullFormatter())
    if not log_y:
        axes.set_ylim(0, 1.08 * max(y for points in curves.values() for _, y in points))
    if x_ticks:
        ticks(axes.xaxis, x_ticks)
    axes.grid()
    if len(curves) > 1:
        figure.legend(loc="outside lower center", ncols=3, handlelength=1.8, columnspacing=1.2)
    save(figure, path)
