#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what `hisparse replay --json` and `hisparse synth --json` print, and traces.

FILE is such a document, or a trace (.jsonl) of `hisparse trace`. For every file:
SVG pictures in the output folder; for all of them: one index.html that needs no
other file. Only the standard library is used.
"""
import argparse
import base64
import html
import json
import math
import pathlib
import struct
import sys
import zlib

# Okabe and Ito: told apart by colour-blind readers too.
POLICY = {"vanilla": "#999999", "fifo": "#d55e00", "random": "#e69f00", "lru": "#0072b2",
          "belady": "#009e73"}
NAMES = {"vanilla": "swap-vanilla", "fifo": "FIFO", "random": "random", "lru": "LRU",
         "belady": "Belady (bound)"}
KINDS = {"stall": "#d55e00", "stage": "#56b4e9", "swap-in": "#0072b2", "attention": "#009e73",
         "combine": "#e69f00", "writer": "#999999", "invalidate": "#cc79a7",
         "reader": "#b2b000"}
# Light to dark on paper, dark to light on a dark page would lie: one scale for both.
HEAT = [(0.0, (13, 8, 135)), (0.25, (126, 3, 168)), (0.5, (204, 71, 120)), (0.75, (248, 149, 64)),
        (1.0, (240, 249, 33))]
STYLE = """
svg { font: 13px system-ui, sans-serif; --ink: #1a1a1a; --faint: #d8d8d8; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8e8e8; --faint: #444; --paper: #16181c; }
}
.paper { fill: var(--paper); } text { fill: var(--ink); }
.axis { stroke: var(--ink); } .grid { stroke: var(--faint); }
.small { font-size: 11px; } .title { font-size: 16px; font-weight: 600; }
.line { fill: none; stroke-width: 1; } .mean { stroke: var(--ink); stroke-width: 2.5; }
"""


class Picture:
    """An SVG with a plot area and room for axes around it."""

    def __init__(self, title, note, width=820, height=420, left=70, right=30):
        self.width, self.height, self.title = width, height, title
        self.x0, self.x1, self.y0, self.y1 = left, width - right, height - 60, 70
        self.parts = [f'<rect class="paper" width="{width}" height="{height}"/>']
        self.text(min(left, 70), 28, title, "start", "title")
        self.text(min(left, 70), 48, note, "start", "small")

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, anchor="middle", kind="", extra=""):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}" {extra}>'
                 f'{html.escape(str(text))}</text>')

    def rule(self, x0, y0, x1, y1, kind="grid"):
        self.add(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" class="{kind}"/>')

    def scale_y(self, top, label):
        """Axis from 0 to at least top; returns value -> y."""
        step = nice(top / 5)
        count = max(1, math.ceil(top / step - 1e-9))
        for i in range(count + 1):
            y = self.y0 - (self.y0 - self.y1) * i / count
            self.rule(self.x0, y, self.x1, y)
            self.text(self.x0 - 8, y + 4, f"{i * step:,g}", "end", "small")
        self.label_y(label)
        self.rule(self.x0, self.y0, self.x1, self.y0, "axis")
        return lambda value: self.y0 - (self.y0 - self.y1) * value / (count * step)

    def label_y(self, label):
        middle = (self.y0 + self.y1) / 2
        self.text(16, middle, label, "middle", "", f'transform="rotate(-90 16 {middle:.0f})"')

    def render(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
                f' width="{self.width}" height="{self.height}" role="img" aria-label="'
                f'{html.escape(self.title)}"><style>{STYLE}</style>{"".join(self.parts)}</svg>\n')


def nice(step):
    """The next of 1, 2, 5, 10, … from step on."""
    if step <= 0:
        return 1
    power = 10 ** math.floor(math.log10(step))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= step * (1 - 1e-9))


def count_text(value):
    return f"{value:,}"


def plural(count, what):
    return f"{count_text(count)} {what}{'' if count == 1 else 's'}"


def note_of(replay):
    trace = replay["trace"]
    kind = "SYNTHETIC selections, not measured. " if trace["synthetic"] else ""
    text = f"{kind}{plural(trace['layers'], 'layer')}, {plural(trace['steps'], 'step')}, "
    if trace.get("merged"):
        return (f"{text}all requests together: up to {plural(trace['top_k'], 'row')} a step of "
                f"{count_text(trace['context'])} slots")
    return (f"{text}{plural(trace['requests'], 'request')}, context "
            f"{count_text(trace['context'])}, top-k {count_text(trace['top_k'])}")


def bars(replay, buffer):
    """The miss rates of the policies, a group for every size."""
    rows = [row for row in replay["policies"] if row["buffer"] == buffer]
    if not rows:
        return None
    topk = replay["trace"]["top_k"]
    groups = []
    for row in rows:
        rates = row["miss_rate"]
        # With k slots nothing is left to choose: one bar stands for all.
        if row["slots_per_request"] == topk and "vanilla" in rates:
            rates = {"vanilla": rates["vanilla"]}
        elif row["slots_per_request"] != topk:
            rates = {name: rate for name, rate in rates.items() if name != "vanilla"}
        groups.append((row, list(rates.items())))
    what = "a buffer for each request" if buffer == "request" else "one buffer that all share"
    picture = Picture(f"Selected rows that must be fetched, {what}", note_of(replay))
    top = max((rate for _, rates in groups for _, rate in rates), default=0) * 100
    y = picture.scale_y(top * 1.08 or 1, "misses, % of selected rows")
    total = sum(len(rates) for _, rates in groups) + len(groups)
    width = min(60, (picture.x1 - picture.x0) / max(total, 1))
    x = picture.x0 + width / 2
    for row, rates in groups:
        start = x
        for name, rate in rates:
            value = rate * 100
            picture.add(f'<rect x="{x + 2:.1f}" y="{y(value):.1f}" width="{width - 4:.1f}" height="'
                        f'{picture.y0 - y(value):.1f}" fill="{POLICY[name]}"><title>{NAMES[name]}: '
                        f'{value:.2f} %</title></rect>')
            picture.text(x + width / 2, y(value) - 5, f"{value:.1f}", "middle", "small")
            short = {"vanilla": "vanilla", "belady": "Belady"}.get(name, NAMES[name])
            picture.text(x + width / 2, picture.y0 + 16, short, "middle", "small")
            x += width
        picture.text((start + x) / 2, picture.y0 + 36, f"{count_text(row['slots'])} slots")
        x += width
    return picture


def curves(replay):
    """Miss ratio of LRU over the slots of a request: each layer, and their mean."""
    curve = replay.get("curve") or replay.get("shared_curve")
    if not curve:
        return None
    slots = curve["slots_per_request"]
    layers, mean = curve["layers"], curve["mean"]
    # Past the size where everything fits nothing happens any more.
    last = next((i for i, rate in enumerate(mean) if rate <= mean[-1] + 1e-4), len(slots) - 1)
    last = max(last, min(1, len(slots) - 1))
    slots = slots[:last + 1]
    picture = Picture("Miss-ratio curve of LRU, layer by layer", note_of(replay), right=110)
    top = max(max(line[:last + 1]) for line in layers) * 100
    y = picture.scale_y(top * 1.05 or 1, "misses, % of selected rows")
    span = math.log2(slots[-1] / slots[0]) or 1

    def x(value):
        return picture.x0 + (picture.x1 - picture.x0) * math.log2(value / slots[0]) / span

    tick = slots[0]
    while tick <= slots[-1]:
        picture.rule(x(tick), picture.y0, x(tick), picture.y1)
        picture.text(x(tick), picture.y0 + 18, count_text(tick), "middle", "small")
        tick *= 2
    picture.text((picture.x0 + picture.x1) / 2, picture.y0 + 42,
                 "slots of one request" if "curve" in replay else "slots, shared by all")

    def points(line):
        return " ".join(f"{x(s):.1f},{y(r * 100):.1f}" for s, r in zip(slots, line))

    for number, line in enumerate(layers):
        share = number / max(1, len(layers) - 1)
        picture.add(f'<polyline class="line" stroke="{colour(0.2 + 0.65 * share)}" opacity="0.7" '
                    f'points="{points(line)}"><title>layer {number}</title></polyline>')
    picture.add(f'<polyline class="line mean" points="{points(mean)}"><title>mean</title>'
                "</polyline>")
    picture.text(picture.x1 + 10, y(mean[last] * 100) + 4, "mean", "start", "small",
                 'font-weight="600"')
    for i, (name, share) in enumerate((("first layer", 0.2), ("last layer", 0.85))):
        top_y = picture.y1 + 12 + 18 * i
        picture.add(f'<rect x="{picture.x1 + 10}" y="{top_y - 8}" width="14" height="3" '
                    f'fill="{colour(share)}"/>')
        picture.text(picture.x1 + 30, top_y - 2, name, "start", "small")
    return picture


def colour_of(share):
    share = min(1.0, max(0.0, share))
    for (a, low), (b, high) in zip(HEAT, HEAT[1:]):
        if share <= b:
            part = (share - a) / (b - a)
            return tuple(round(p + (q - p) * part) for p, q in zip(low, high))
    return HEAT[-1][1]


def colour(share):
    return "#%02x%02x%02x" % colour_of(share)


def png(rows):
    """Rows of RGB triples as a PNG."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    data = b"".join(b"\0" + bytes(v for pixel in row for v in pixel) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" +
            chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def draw_heat(picture, misses, steps, top, unit):
    """A line a layer, a column a step or several."""
    image = base64.b64encode(png([[colour_of(v / top) for v in line] for line in misses])).decode()
    picture.add(f'<image x="{picture.x0}" y="{picture.y1}" width="{picture.x1 - picture.x0}" '
                f'height="{picture.y0 - picture.y1}" preserveAspectRatio="none" '
                f'style="image-rendering: pixelated" href="data:image/png;base64,{image}"/>')
    first, last = steps
    step = max(1, nice((last - first) / 8))
    for i in range(math.ceil(first / step), math.floor(last / step) + 1):
        x = picture.x0 + (picture.x1 - picture.x0) * (i * step - first) / (last - first)
        picture.text(x, picture.y0 + 18, f"{i * step:,g}", "middle", "small")
    picture.text((picture.x0 + picture.x1) / 2, picture.y0 + 42, "step")
    every = max(1, int(nice(len(misses) / 12)))
    high = (picture.y0 - picture.y1) / len(misses)
    for layer in range(0, len(misses), every):
        picture.text(picture.x0 - 8, picture.y1 + high * (layer + 0.5) + 4, layer, "end", "small")
    picture.label_y("layer")
    for i in range(40):
        y = picture.y0 - (picture.y0 - picture.y1) * (i + 1) / 40
        picture.add(f'<rect x="{picture.x1 + 14}" y="{y:.1f}" width="14" height="'
                    f'{(picture.y0 - picture.y1) / 40 + 0.6:.1f}" fill="{colour(i / 39)}"/>')
    for share in (0, 0.5, 1):
        y = picture.y0 - (picture.y0 - picture.y1) * share
        more = "≥ " if share == 1 else ""
        picture.text(picture.x1 + 34, y + 4, f"{more}{top * share:,.0f}", "start", "small")
    picture.text(picture.x1 + 14, picture.y1 - 10, unit, "start", "small")
    return picture


def heat(replay):
    """Misses by layer and step."""
    data = replay.get("heat")
    if not data:
        return None
    misses, width = data["misses"], data["steps_per_column"]
    # The cold start would take the whole scale.
    warm = sorted(v for line in misses for v in line[max(1, replay["skip"] // width):]) or [1]
    slots = count_text(data["slots_per_request"])
    picture = Picture(f"Misses by layer and step, LRU, {slots} slots", note_of(replay), right=110)
    return draw_heat(picture, misses, (0, replay["trace"]["steps"]), top_of(warm),
                     "rows a step" if replay["trace"].get("merged") else "rows a list")


def top_of(values):
    """Nearly the largest: a few may be beyond the scale."""
    return values[int(0.995 * (len(values) - 1))] or 1


class Trace:
    """What a .jsonl trace holds."""

    def __init__(self, lines):
        told = [json.loads(line) for line in lines if line.strip()]
        if not told or told[0].get("type") != "head":
            raise ValueError("no trace: its first line is no head")
        self.kernels, self.steps = {}, {}
        for record in told:
            if record["type"] == "step" and record["launches"]:
                self.steps[record["device"], record["step"]] = record
            elif record["type"] == "kernel" and "step" in record:
                self.kernels.setdefault((record["device"], record["step"]), []).append(record)
        if not self.steps:
            raise ValueError("the trace has no step")
        self.device = min(device for device, _ in self.steps)
        self.mine = sorted(step for device, step in self.steps if device == self.device)
        layers = 1 + max(r["layer"] for r in sum(self.kernels.values(), []))
        self.note = f"{plural(layers, 'layer')}, {plural(len(self.mine), 'step')}"
        devices = len({device for device, _ in self.steps})
        if devices > 1:
            self.note += f", GPU {self.device} of {devices}"

    def rows(self):
        """Misses: a line a layer."""
        number = {step: i for i, step in enumerate(self.mine)}
        found = {}
        for (device, step), records in self.kernels.items():
            for record in records:
                if device == self.device and step in number and "misses" in record:
                    line = found.setdefault(record["layer"], [0] * len(number))
                    line[number[step]] += record["misses"]
        return [found.get(layer, [0] * len(number)) for layer in range(max(found) + 1)]

    def timed(self, step):
        """Kernels of a step whose times are known."""
        return [r for r in self.kernels.get((self.device, step), []) if "start" in r]


def trace_heat(trace):
    misses = trace.rows()
    most = 700
    width = -(-len(misses[0]) // most)
    misses = [[sum(line[i:i + width]) / width for i in range(0, len(line), width)]
              for line in misses]
    top = top_of(sorted(v for line in misses for v in line))
    picture = Picture("Misses by layer and step, traced", trace.note, right=110)
    return draw_heat(picture, misses, (trace.mine[0], trace.mine[-1] + 1), top, "rows a launch")


def legend(picture, names):
    for i, (name, fill) in enumerate(names.items()):
        y = picture.y1 + 12 + 18 * i
        picture.add(f'<rect x="{picture.x1 + 14}" y="{y - 8}" width="14" height="10" '
                    f'fill="{fill}"/>')
        picture.text(picture.x1 + 34, y + 1, name, "start", "small")


def trace_steps(trace):
    """Time of swap-ins, of attention, and what attention waited for, a step."""
    steps = [trace.steps[trace.device, n] for n in trace.mine if trace.timed(n)]
    if len(steps) < 2:
        return None
    picture = Picture("Time of a step's kernels, all layers", trace.note, right=110)
    fields = {"stall": "stall", "swap-in": "swap_in", "attention": "attention"}
    values = sorted(step[field] / 1000 for step in steps for field in fields.values())
    y = picture.scale_y(top_of(values) * 1.1, "µs a step")
    first, last = steps[0]["step"], steps[-1]["step"]
    for name, field in fields.items():
        points = " ".join(
            f"{picture.x0 + (picture.x1 - picture.x0) * (s['step'] - first) / (last - first):.1f},"
            f"{max(picture.y1, y(s[field] / 1000)):.1f}" for s in steps)
        picture.add(f'<polyline class="line" style="stroke-width: 1.5" stroke="{KINDS[name]}" '
                    f'points="{points}"/>')
    tick = max(1, nice((last - first) / 8))
    for i in range(math.ceil(first / tick), math.floor(last / tick) + 1):
        x = picture.x0 + (picture.x1 - picture.x0) * (i * tick - first) / (last - first)
        picture.text(x, picture.y0 + 18, f"{i * tick:,g}", "middle", "small")
    picture.text((picture.x0 + picture.x1) / 2, picture.y0 + 42, "step")
    legend(picture, {name: KINDS[name] for name in fields})
    return picture


def timeline(trace):
    """The kernels of the step with the middle stall."""
    steps = sorted((n for n in trace.mine if trace.timed(n)),
                   key=lambda n: trace.steps[trace.device, n]["stall"])
    if not steps:
        return None
    number = steps[len(steps) // 2]
    step, kernels = trace.steps[trace.device, number], trace.timed(number)
    lanes = [kind for kind in KINDS if kind == "stall" or any(k["kind"] == kind for k in kernels)]
    picture = Picture(f"Step {number}: what ran when", f"{trace.note}; {step['misses']:,} misses, "
                      f"attention waited {step['stall'] / 1000:,.1f} µs",
                      height=136 + 30 * len(lanes), left=90)
    begin = min(k["start"] - k.get("stall", 0) for k in kernels)
    span = max(k["end"] for k in kernels) - begin or 1

    def x(time):
        return picture.x0 + (picture.x1 - picture.x0) * (time - begin) / span

    def bar(kind, start, end, text):
        top = picture.y1 + 30 * lanes.index(kind) + 5
        picture.add(f'<rect x="{x(start):.2f}" y="{top}" width="{max(0.7, x(end) - x(start)):.2f}" '
                    f'height="20" fill="{KINDS[kind]}"><title>{html.escape(text)}</title></rect>')

    tick = nice(span / 1000 / 8)
    for i in range(int(span / 1000 / tick) + 1):
        at = x(begin + i * tick * 1000)
        picture.rule(at, picture.y0, at, picture.y1)
        picture.text(at, picture.y0 + 18, f"{i * tick:,g}", "middle", "small")
    picture.text((picture.x0 + picture.x1) / 2, picture.y0 + 42, "µs")
    for i, kind in enumerate(lanes):
        picture.text(picture.x0 - 8, picture.y1 + 30 * i + 19, kind, "end", "small")
    for k in kernels:
        text = f"layer {k['layer']}, {(k['end'] - k['start']) / 1000:,.1f} µs"
        if "misses" in k:
            text += f", {k['misses']:,} misses, {k['hits']:,} hits"
        if k["kind"] in lanes:
            bar(k["kind"], k["start"], k["end"], f"{k['kind']}, {text}")
        if "stall" in k:
            bar("stall", k["start"] - k["stall"], k["start"],
                f"layer {k['layer']}, attention waited {k['stall'] / 1000:,.1f} µs")
    room = 0
    for k in sorted(kernels, key=lambda k: k["start"]):
        if k["kind"] == "attention" and x(k["start"]) > room:
            picture.text(x(k["start"]), picture.y1 - 6, k["layer"], "middle", "small")
            room = x(k["start"]) + 16
    picture.text(picture.x0 - 8, picture.y1 - 6, "layer", "end", "small")
    return picture


def targets(synth):
    """Published shares beside what the synthetic selections give."""
    rows = [row for row in synth["targets"] if row["rate"]]
    name = synth["calibration"]
    picture = Picture(f"Calibration {name}: published (grey) and SYNTHETIC (colour)",
                      f"fitted to {synth['fitted_to']}; nothing here is measured by us",
                      height=110 + 24 * len(rows) + 30, left=290)
    top = max(max(row["published"][1], row["synthetic"]) for row in rows)
    step = nice(top * 100 / 5)

    def x(value):
        return picture.x0 + (picture.x1 - picture.x0) * value * 100 / (math.ceil(
            top * 100 / step) * step)

    for i in range(math.ceil(top * 100 / step) + 1):
        picture.rule(x(i * step / 100), picture.y1, x(i * step / 100), picture.y0)
        picture.text(x(i * step / 100), picture.y0 + 18, f"{i * step:g} %", "middle", "small")
    for i, row in enumerate(rows):
        y = picture.y1 + 18 + 24 * i
        low, high = row["published"]
        fill = "#0072b2" if row["use"] == "fitted" else "#d55e00"
        picture.text(picture.x0 - 10, y + 4, f"{row['id']}  {row['statistic']}", "end", "small")
        picture.add(f'<rect x="{x(low) - 4:.1f}" y="{y - 7}" width="{x(high) - x(low) + 8:.1f}" '
                    f'height="14" rx="3" fill="#999999" opacity="0.6"/>')
        picture.add(f'<circle cx="{x(row["synthetic"]):.1f}" cy="{y}" r="4.5" fill="{fill}"><title>'
                    f'{100 * row["synthetic"]:.1f} %, error {100 * row["error"]:+.1f}</title>'
                    "</circle>")
    picture.add(f'<circle cx="{picture.x0}" cy="{picture.y0 + 40}" r="4.5" fill="#0072b2"/>')
    picture.text(picture.x0 + 10, picture.y0 + 44, "fitted", "start", "small")
    picture.add(f'<circle cx="{picture.x0 + 70}" cy="{picture.y0 + 40}" r="4.5" fill="#d55e00"/>')
    picture.text(picture.x0 + 80, picture.y0 + 44, "held out, or the layers' shape", "start",
                 "small")
    return picture


def pictures(file):
    """(suffix, picture) of everything that the file has."""
    if file.suffix == ".jsonl":
        trace = Trace(file.read_text().splitlines())
        made = [("timeline", timeline(trace)), ("steps", trace_steps(trace)),
                ("heat", trace_heat(trace))]
        return [(suffix, picture) for suffix, picture in made if picture]
    document = json.loads(file.read_text())
    if "targets" in document:
        return [("targets", targets(document))]
    if "policies" in document:
        made = [("bars", bars(document, "request")), ("shared", bars(document, "shared")),
                ("curve", curves(document)), ("heat", heat(document))]
        return [(suffix, picture) for suffix, picture in made if picture]
    raise ValueError("neither a replay nor a synth document")


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>hisparse</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 15px system-ui, sans-serif; max-width: 860px; margin: 2em auto; padding: 0 1em;
  background: #fff; color: #1a1a1a; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #16181c; color: #e8e8e8; }} }}
figure {{ margin: 1.5em 0; overflow-x: auto; }}
svg {{ width: 100%; min-width: 640px; height: auto; display: block; }}
h2 {{ overflow-wrap: anywhere; }}
</style></head><body><h1>hisparse</h1>
{body}</body></html>
"""


def main():
    parser = argparse.ArgumentParser(prog="hisparse plot", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", "--output", default="hisparse-plots", metavar="DIR",
                        help="folder for the pictures; default hisparse-plots")
    options = parser.parse_args()

    output, body, used = pathlib.Path(options.output), [], set()
    for file in map(pathlib.Path, options.files):
        try:
            made = pictures(file)
            output.mkdir(parents=True, exist_ok=True)
            name = file.stem
            while name in used:
                name += "-2"
            used.add(name)
            body.append(f"<h2>{html.escape(file.name)}</h2>\n")
            for suffix, picture in made:
                svg = picture.render()
                (output / f"{name}.{suffix}.svg").write_text(svg)
                body.append(f"<figure>{svg}</figure>\n")
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            print(f"hisparse: {file}: {error}", file=sys.stderr)
            return 1
    page = output / "index.html"
    page.write_text(PAGE.format(body="".join(body)))
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
