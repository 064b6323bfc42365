#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Swap-in benchmark: the library's resolve path, SGLang's kernel and a plain gather on the same
rows, lists and flushes. README of the figures: every call is timed by events inside a replayed
graph, the L2 flushed before it; caches start empty and evolve from step to step; after every step
each entry of each output list is checked for the bytes that attention would read, and at the end
every row that should be hot.

Sets of cells (--set, several with commas):
  table   656-byte rows, batch 1 to 256, 0 to 20 % misses
  rows    512- and 1152-byte rows, batch 16, 64 and 256, 13.4 and 20 %
  extras  graph padding, and the early exit of layers that do not swap
  quick   a few cells for tuning (with --no-sglang under half a minute)
  tiny    two small cells for sanitizers
--rows, --batch or --miss choose a product of their own instead.

The library reads the driver's managed memory, or what --memory says, and SGLang's kernel a second
pool of registered memory with the same bytes: 15 GiB each.

Cells run in one worker process; one that crashes or hangs costs its own cell only.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time

import swapin_cells
import swapin_goals
import swapin_worker


def numbers(text):
    return [int(one) for one in text.split(',')]


def names(text):
    for one in text.split(','):
        if one not in swapin_cells.SETS:
            raise argparse.ArgumentTypeError('%s: none of %s' % (one, ', '.join(swapin_cells.SETS)))
    return text.split(',')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('library', help='libswapin.so, from the build folder')
    add('--load', action='append', default=[], metavar='LIBRARY',
        help='load this first (the stand-in driver and its kernels)')
    add('--variant', action='append', default=[], metavar='NAME=LIBRARY',
        help='another libswapin.so (tools/bench/variants), on the same cells')
    add('--set', type=names, default=['table', 'rows', 'extras'])
    add('--quick', action='store_const', const=['quick'], dest='set')
    add('--rows', type=numbers, help='row sizes in bytes')
    add('--batch', type=numbers)
    add('--miss', type=numbers, help='misses per mille of k')
    add('--k', type=int, default=2048)
    add('--hot', type=int, default=4096, help='hot rows a request and layer, the same for all')
    add('--ctx', type=int, default=65536)
    add('--layers', type=int, default=8)
    add('--steps', type=int, help='timed steps (16; 10 from batch 100 on)')
    add('--settle', type=int,
        help='steps after the caches are full, before timed ones (16; 8 from batch 100 on; 60 '
        'with few misses)')
    add('--churn', type=int, default=150, help='per mille of hits that the last step did not have')
    add('--pool-mib', type=int, default=15 * 1024, help='at least; more where a cell needs it')
    add('--memory', choices=['managed', 'registered'], default='managed',
        help="what ours and the gathers read; SGLang's kernel reads registered memory, as ever")
    add('--flush-mib', type=int, default=128, help='written before each call, or read')
    add('--flush-reads', action='store_true',
        help='read instead, as weights are: the L2 has nothing to write back then')
    add('--host-calls', type=int, default=256, help='eager resolves whose host time is taken')
    add('--policy', type=int, default=0, help='number of the eviction policy: 0 is LRU')
    add('--seed', type=int, default=1)
    add('--padding', type=int, default=0, help='lists at the end of a batch that are -1')
    add('--resident', action='store_true', help='never start the layers: the early exit')
    add('--eager', action='store_true',
        help='no graphs: for ncu and sanitizers; its times hold gaps')
    add('--profile', action='store_true',
        help='switch a profiler on for the timed steps only (cuProfilerStart)')
    add('--no-sglang', action='store_true')
    add('--sorted-gather', action='store_true',
        help="another side: the gather's rows sorted by address before, over each layer")
    add('--sglang-block', type=int, default=960, help="threads a request; 960 is its server's")
    add('--cell-limit', type=int, default=60, help='seconds until a cell counts as hung')
    add('--limit', type=int, default=400, help='seconds after which no further cell is started')
    add('--json', help='write every cell as one line (swapin_report.py reads it)')
    add('--worker', help=argparse.SUPPRESS)
    return parser.parse_args()


class Parent:
    """Starts workers, takes their lines, ends the ones that hang."""

    def __init__(self, options):
        self.options = options
        self.todo = swapin_cells.choose(options)
        self.done, self.notes, self.bad = [], [], False
        self.started = time.time()

    def work(self):
        command = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + [
            '--worker', json.dumps(self.todo)]
        lines, before = queue.Queue(), len(self.done)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            reader = threading.Thread(target=self.read, args=(process.stdout, lines), daemon=True)
            reader.start()
            current, limit = None, 240  # the kernel of SGLang is compiled first
            while True:
                try:
                    text = lines.get(timeout=limit)
                except queue.Empty:
                    process.kill()
                    return self.lost(current, before, 'hung')
                if text is None:
                    break
                current, started = self.take(text, current)
                limit = self.options.cell_limit if started or len(self.done) > before else limit
                if time.time() - self.started > self.options.limit and not current and self.todo:
                    process.kill()
                    print('time is up: %d cells left out' % len(self.todo), flush=True)
                    return False
        if process.returncode:
            return self.lost(current, before, 'worker ended with %d' % process.returncode)
        return False

    @staticmethod
    def read(stream, lines):
        for text in stream:
            lines.put(text)
        lines.put(None)

    def lost(self, current, before, why):
        """True when another worker should go on with what is left."""
        if current:
            self.todo.remove(current)
            told = self.done and self.done[-1].get('error') and all(
                self.done[-1][part] == value for part, value in current.items())
            if not told:
                self.finish(dict(current, variant='', error=why))
        elif len(self.done) == before:
            print('swapin: %s before its first cell' % why, file=sys.stderr)
            self.bad = True
            return False
        return bool(self.todo) and time.time() - self.started < self.options.limit

    def take(self, text, current):
        """The cell that runs now, and whether one was begun."""
        try:
            what = json.loads(text)
        except ValueError:
            print(text, end='', flush=True)
            return current, False
        if 'note' in what:
            print('[%5.1f s] %s' % (time.time() - self.started, what['note']), flush=True)
            self.bad = self.bad or bool(what.get('bad'))
            self.notes.append(what)
        elif 'start' in what:
            return what['start'], True
        elif 'cell' in what:
            self.finish(what['cell'])
        elif 'end' in what:
            self.todo.remove(what['end'])
            return None, False
        return current, False

    def finish(self, cell):
        self.done.append(cell)
        print('[%5.1f s] %s' % (time.time() - self.started, swapin_goals.line(cell)), flush=True)

    def head(self):
        try:
            device, driver = subprocess.run(
                ['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'],
                capture_output=True, text=True, check=True).stdout.splitlines()[0].split(', ')
        except (OSError, subprocess.SubprocessError, IndexError, ValueError):
            device, driver = 'stand-in driver', ''
        return {'date': time.strftime('%Y-%m-%d'), 'device': device, 'driver': driver,
                'command': 'tools/bench/swapin.py ' + ' '.join(sys.argv[1:])}

    def report(self):
        options, head = self.options, self.head()
        print('\n%s, driver %s, %s: %s' % (head['device'], head['driver'], head['date'],
                                           head['command']))
        print('k %d, hot %d rows a request and layer, context %d, %d layers; timed steps: %s' % (
            options.k, options.hot, options.ctx, options.layers, ', '.join(
                '%d after %d in a full cache at batch %d, %.1f %%' % (timed, settle + 2, batch,
                                                                     miss / 10)
                for batch, miss in sorted({(cell['batch'], cell['miss']) for cell in self.done})
                for settle, timed in [swapin_cells.lengths(options, batch, miss)])))
        print(swapin_goals.table(self.done), flush=True)
        if options.json:
            with open(options.json, 'w', encoding='utf-8') as file:
                for cell in self.done:
                    marks = [{'goal': text, 'met': met}
                             for text, met in swapin_goals.goals(cell)]
                    file.write(json.dumps(dict(head, **cell, goals=marks)) + '\n')

    def run(self):
        while self.work():
            pass
        self.report()
        wrong = [cell for cell in self.done
                 if cell.get('error') or not all(cell['right'].values())]
        return 1 if wrong or self.bad or self.todo else 0


def main():
    options = arguments()
    if options.worker:
        swapin_worker.steered(options)
        swapin_worker.Worker(options).run()
        return 0
    return Parent(options).run()


if __name__ == '__main__':
    sys.exit(main())
