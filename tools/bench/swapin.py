#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Swap-in benchmark: the library's resolve path, SGLang's kernel and a plain gather on the same
rows, lists and flushes. README of the figures: every call is timed by events inside a replayed
graph, the L2 flushed before it; caches start empty and evolve from step to step; after every step
each entry of each output list is checked for the bytes that attention would read.

Cells run in a worker process: one that crashes or hangs costs its own cell only.
"""

import argparse
import ctypes
import json
import os
import queue
import subprocess
import sys
import threading
import time

import swapin_core as core_part
import swapin_goals
from swapin_core import EMPTY, GATHER, OURS

HERE = os.path.dirname(os.path.abspath(__file__))


def numbers(text):
    return [int(one) for one in text.split(',')]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n', maxsplit=1)[0])
    add = parser.add_argument
    add('library', help='libswapin.so, from the build folder')
    add('--load', action='append', default=[], metavar='LIBRARY',
        help='load this first (the stand-in driver and its kernels)')
    add('--rows', type=numbers, default=[656, 512, 1152], help='row sizes in bytes')
    add('--batch', type=numbers, default=[1, 16, 64, 100, 256])
    add('--miss', type=numbers, default=[0, 1, 134, 200], help='misses per mille of k')
    add('--k', type=int, default=2048)
    add('--hot', type=int, default=4096, help='hot rows a request and layer, the same for all')
    add('--ctx', type=int, default=65536)
    add('--layers', type=int, default=8)
    add('--steps', type=int, default=16, help='timed steps')
    add('--settle', type=int, default=24, help='steps after the caches are full, before timed ones')
    add('--churn', type=int, default=150, help='per mille of hits that the last step did not have')
    add('--pool-mib', type=int, default=15 * 1024, help='at least; more where a cell needs it')
    add('--flush-mib', type=int, default=128, help='written before each call')
    add('--host-calls', type=int, default=256, help='eager resolves whose host time is taken')
    add('--policy', type=int, default=0, help='number of the eviction policy: 0 is LRU')
    add('--seed', type=int, default=1)
    add('--padding', type=int, default=0, help='lists at the end of a batch that are -1')
    add('--resident', action='store_true', help='never start the layers: the early exit')
    add('--no-sglang', action='store_true')
    add('--sglang-block', type=int, default=960, help="threads a request; 960 is its server's")
    add('--cell-limit', type=int, default=60, help='seconds until a cell counts as hung')
    add('--limit', type=int, default=230, help='seconds after which no further cell is started')
    add('--json', help='write every cell as one line')
    add('--results', help='append every figure as one line of tests/gpu/results.jsonl')
    add('--worker', help=argparse.SUPPRESS)
    return parser.parse_args()


def cells(options):
    """656 first: it carries the goals. Row sizes share a trace, so they are neighbours."""
    return [(batch, miss, row) for batch in options.batch for miss in options.miss
            for row in options.rows]


def say(**what):
    print(json.dumps(what), flush=True)


def spread(values):
    ordered = sorted(values)
    return {'median': ordered[len(ordered) // 2], 'p10': ordered[len(ordered) // 10],
            'p90': ordered[len(ordered) * 9 // 10], 'n': len(ordered)}


class Worker:
    def __init__(self, options):
        self.options = options
        self.todo = json.loads(options.worker)
        for path in options.load:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        self.core = core_part.Core(os.path.abspath(options.library))
        self.torch = self.function = self.lists = None
        self.failed = {}
        if not options.no_sglang:
            self.open_sglang()
        largest = max(core_part.window_bytes(batch, options.ctx, row)
                      for batch, _, row in self.todo)
        start = time.time()
        self.core.open_pool(max(options.pool_mib << 20, largest))
        say(note='pool %.1f GiB in %.1f s' % (self.core.rows.bytes / 2**30, time.time() - start))

    def open_sglang(self):
        try:
            import swapin_sglang
            import torch
            start = time.time()
            function, version = swapin_sglang.load()
            self.failed = swapin_sglang.build(torch, function, sorted({c[2] for c in self.todo}),
                                              self.options.hot, self.options.k,
                                              self.options.sglang_block)
            self.torch, self.function = torch, function
            say(note='SGLang %s: kernel ready in %.0f s%s' % (
                version, time.time() - start, ''.join(
                    '; %d bytes: %s' % one for one in self.failed.items())), sglang=version)
        except Exception as error:
            say(note='no SGLang: %s: %s' % (type(error).__name__, error))

    def trace(self, batch, miss):
        options = self.options
        if self.lists:
            if self.key == (batch, miss):
                return self.lists
            self.lists.close()
            self.lists = None
        warm = -(-options.hot // options.k) + 2 + options.settle
        self.lists = core_part.Lists(self.core.library, options.layers, warm + options.steps,
                                     batch, options.k, options.ctx, options.hot,
                                     (options.k * miss + 500) // 1000, options.churn, options.seed)
        self.key = (batch, miss)
        return self.lists

    def run(self):
        for batch, miss, row in self.todo:
            say(start=[batch, miss, row])
            result = {'batch': batch, 'miss': miss, 'row': row, 'pool': self.core.rows.bytes}
            start = time.time()
            try:
                result.update(self.cell(self.trace(batch, miss), row))
            except Exception as error:
                result['error'] = '%s: %s' % (type(error).__name__, str(error)[-200:])
            result['seconds'] = round(time.time() - start, 2)
            say(cell=result)
            if 'error' in result and not self.core.alive():
                os._exit(3)  # the context is lost: another worker goes on
        if not self.core.check_pool():
            say(note='THE POOL WAS WRITTEN TO', bad=True)
        self.core.close()

    def cell(self, lists, row):
        options = self.options
        cell = core_part.Cell(self.core, lists, row, options.flush_mib << 20, options.policy,
                              options.seed, options.padding, options.resident)
        theirs = None
        try:
            for side in (OURS, GATHER, EMPTY):
                cell.record(side)
            if self.function and row not in self.failed:
                theirs = self.sglang_side(cell)
            return self.steps(cell, theirs, lists, row)
        finally:
            theirs = None
            cell.close()
            if self.torch:
                self.torch.cuda.empty_cache()

    def sglang_side(self, cell):
        import swapin_sglang
        try:
            return swapin_sglang.Side(self.torch, self.function, cell, self.options.sglang_block)
        except Exception as error:
            if not self.core.alive():
                raise
            say(note='no SGLang in this cell: %s: %s' % (type(error).__name__, str(error)[-300:]))
            return None

    def steps(self, cell, theirs, lists, row):
        options, trace = self.options, lists.trace
        entries = trace.layers * trace.batch * trace.k
        warm = lists.warm + options.settle
        times = {side: [] for side in core_part.SIDES}
        misses = {'ours': 0, 'lru': 0}
        sums = {'ours': [0] * 5, 'gather': [0] * 5}
        inplace = 0
        if theirs:
            misses['sglang'], sums['sglang'] = 0, [0] * 5

        def ours():
            before = cell.counts().misses
            us = cell.replay(OURS)
            swapped = cell.counts().misses - before
            return us, swapped, cell.check()

        def sglang():
            us, swapped = theirs.replay()
            return us, swapped, theirs.check()

        def gather():
            return cell.replay(GATHER), 0, cell.check_gather()

        for step in range(trace.steps):
            cell.load(step)
            timed = step >= warm
            sides = [('ours', ours)] + ([('sglang', sglang)] if theirs else [])
            # Who goes first finds the pages cold in the GPU's TLB: take turns.
            if timed:
                sides += [('gather', gather),
                          ('empty', lambda: (cell.replay(EMPTY), 0, None))]
                sides = sides[step % len(sides):] + sides[:step % len(sides)]
            for name, call in sides:
                us, swapped, checked = call()
                if checked:
                    sums[name] = [a + b for a, b in zip(sums[name], checked)]
                if timed:
                    times[name] += us
                    if name in misses:
                        misses[name] += swapped
                    if name == 'ours':
                        inplace += checked[core_part.IN_PLACE]
            if timed:
                for layer in range(trace.layers):
                    first = (step * trace.layers + layer) * trace.batch
                    misses['lru'] += sum(
                        lists.misses[first:first + trace.batch - options.padding])

        us = {side: spread(values) for side, values in times.items() if values}
        calls = trace.layers * (trace.steps - warm)
        result = {'us': us, 'misses': misses, 'inplace': inplace, 'calls': calls,
                  'right': {name: total[core_part.BAD_INDEX] == 0 and
                            total[core_part.BAD_BYTES] == 0 and
                            (name == 'gather' or sum(total) == entries * trace.steps)
                            for name, total in sums.items()},
                  'checked': sums, 'gbps': {}, 'host_ns': cell.host_ns(options.host_calls)}
        for side in ('ours', 'sglang', 'gather'):
            moved = misses.get('lru' if side == 'gather' else side, 0) / calls * row
            if side in us and us[side]['median'] > 0 and moved:
                result['gbps'][side] = moved / us[side]['median'] / 1e3
        return result


class Parent:
    """Starts workers, takes their lines, ends the ones that hang."""

    def __init__(self, options):
        self.options = options
        self.todo = cells(options)
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
                current, limit = self.take(text, current), self.options.cell_limit
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
            self.finish({'batch': current[0], 'miss': current[1], 'row': current[2],
                         'error': why})
        elif len(self.done) == before:
            print('swapin: %s before its first cell' % why, file=sys.stderr)
            self.bad = True
            return False
        return bool(self.todo) and time.time() - self.started < self.options.limit

    def take(self, text, current):
        try:
            what = json.loads(text)
        except ValueError:
            print(text, end='', flush=True)
            return current
        if 'note' in what:
            print('[%5.1f s] %s' % (time.time() - self.started, what['note']), flush=True)
            self.bad = self.bad or bool(what.get('bad'))
            self.notes.append(what)
        elif 'start' in what:
            return what['start']
        elif 'cell' in what:
            self.finish(what['cell'])
            return None
        return current

    def finish(self, cell):
        self.todo.remove((cell['batch'], cell['miss'], cell['row']))
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
        head = self.head()
        print()
        print('%s, driver %s, %s: %s' % (head['device'], head['driver'], head['date'],
                                         head['command']))
        print('k %d, hot %d rows a request and layer, context %d, %d layers, %d timed steps '
              'after %d in a full cache' % (
                  self.options.k, self.options.hot, self.options.ctx, self.options.layers,
                  self.options.steps, self.options.settle + 2))
        good = [cell for cell in self.done if not cell.get('error')]
        if good:
            floor = spread([cell['us']['empty']['median'] for cell in good])
            host = spread([cell['host_ns'] for cell in good])
            print('empty launch in the same graph: %.1f us; host time of a resolve: %.1f us' % (
                floor['median'], host['median'] / 1e3))
        print(swapin_goals.table(self.done), flush=True)
        if self.options.json:
            with open(self.options.json, 'w', encoding='utf-8') as file:
                for cell in self.done:
                    marks = [{'goal': text, 'met': met} for text, met in swapin_goals.goals(cell)] \
                        if not cell.get('error') else []
                    file.write(json.dumps(dict(head, **cell, goals=marks)) + '\n')
        if self.options.results:
            with open(self.options.results, 'a', encoding='utf-8') as file:
                for cell in self.done:
                    for one in swapin_goals.results(cell, head):
                        file.write(json.dumps(one) + '\n')

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
        Worker(options).run()
        return 0
    return Parent(options).run()


if __name__ == '__main__':
    sys.exit(main())
