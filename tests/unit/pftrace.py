#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Read a trace back through Perfetto's own schema.

usage: pftrace.py TEST_TIMELINE

Status 77: the Python index's perfetto package is not installed.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
except ImportError:
    sys.exit(77)


def annotations(event):
    return {a.name: a.string_value if a.HasField("string_value") else a.uint_value
            for a in event.debug_annotations}


with tempfile.TemporaryDirectory() as folder:
    binary, lines = pathlib.Path(folder, "x.pftrace"), pathlib.Path(folder, "x.jsonl")
    for path in (binary, lines):
        subprocess.run([os.path.abspath(sys.argv[1]), path], check=True, cwd=folder)
    trace = Trace.FromString(binary.read_bytes())
    told = [json.loads(line) for line in lines.read_text().splitlines()]

unknown = [p for p in trace.packet if p.ByteSize() and not p.trusted_packet_sequence_id]
assert not unknown, unknown
assert trace.packet[0].sequence_flags == 1
assert trace.packet[0].track_descriptor.process.pid == 42
tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet
          if p.HasField("track_descriptor")}
names = {uuid: track.name for uuid, track in tracks.items()}
assert sorted(names.values()) == ["", "bytes fetched", "device 0 stream 7", "misses", "steps"]
assert all(t.parent_uuid in tracks for t in tracks.values() if not t.HasField("process"))

open_slices, slices, counters = {}, [], {}
for packet in trace.packet:
    if not packet.HasField("track_event"):
        continue
    event, track = packet.track_event, names[packet.track_event.track_uuid]
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        assert track not in open_slices
        open_slices[track] = (packet.timestamp, event)
    elif event.type == TrackEvent.TYPE_SLICE_END:
        start, begin = open_slices.pop(track)
        slices.append((track, begin.name, start, packet.timestamp, annotations(begin)))
    else:
        assert event.type == TrackEvent.TYPE_COUNTER
        assert tracks[event.track_uuid].HasField("counter")
        counters.setdefault(track, []).append((packet.timestamp, event.counter_value))
assert not open_slices

# The same kernels, steps and numbers as the other form.
fields = ("layer", "step", "graph", "node", "hits", "misses", "inplace", "bytes",
          "topk_lead", "topk_kernels", "list_lead", "list_kernels", "stall")
kernels = [(r["kind"], r["start"], r["end"],
            dict({k: r[k] for k in fields if k in r}, kernel=r["name"]))
           for r in told if r["type"] == "kernel"]
assert sorted(kernels, key=lambda k: k[1]) == [s[1:] for s in slices if s[0] != "steps"], slices
sums = ("launches", "swap_in", "attention", "stall", "topk_lead", "topk_hides", "list_lead",
        "list_hides", "hits", "misses", "inplace", "bytes")
steps = [(f"step {r['step']}", r["start"], r["end"], {k: r[k] for k in sums})
         for r in told if r["type"] == "step"]
assert steps == [s[1:] for s in slices if s[0] == "steps"] and len(steps) == 2
swaps = [k for k in kernels if k[0] == "swap-in"]
assert counters["misses"] == [(k[2], k[3]["misses"]) for k in swaps] and len(swaps) == 4
assert counters["bytes fetched"] == [(k[2], k[3]["bytes"]) for k in swaps]
