# SPDX-License-Identifier: MIT
"""The process that measures: one device, one pool, one set of traces for all cells. It writes a
line of JSON for everything that happens."""

import contextlib
import ctypes
import json
import os
import sys
import threading
import time

import swapin_cells
import swapin_core as core_part
from swapin_core import EMPTY, GATHER, ORDERED, OURS

LOCK = threading.Lock()


def say(**what):
    with LOCK:
        print(json.dumps(what), flush=True)


def spread(values):
    ordered = sorted(values)
    return {'median': ordered[len(ordered) // 2], 'p10': ordered[len(ordered) // 10],
            'p90': ordered[len(ordered) * 9 // 10], 'mean': sum(ordered) / len(ordered),
            'n': len(ordered)}


class Clock:
    """Where the seconds of a cell go."""

    def __init__(self):
        self.spent = {}

    @contextlib.contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0) + time.perf_counter() - start

    def rounded(self):
        return {name: round(seconds, 3) for name, seconds in self.spent.items()}


class Sums:
    """What the sides of a cell add up to, step by step."""

    def __init__(self, names):
        self.us = {name: [] for name in names}
        self.steps = {name: [] for name in names}  # whole steps
        self.misses = {name: 0 for name in names}
        self.checked = {name: [0] * 5 for name in names}
        self.replays = {name: 0 for name in names}
        self.inplace = self.lru = 0
        self.swept = {}

    def add(self, name, us, swapped, checked, timed):
        self.replays[name] += 1
        if checked:
            self.checked[name] = [a + b for a, b in zip(self.checked[name], checked)]
        if timed:
            self.us[name] += us[:-1]
            self.steps[name].append(us[-1])
            self.misses[name] += swapped
            self.inplace += checked[core_part.IN_PLACE] if name == 'ours' else 0


def steered(options):
    """Starts this process again with the benchmark's library preloaded: the driver then asks its
    mmap for addresses, which managed memory at ours takes (src/memory/steer.h)."""
    library, loaded = os.path.abspath(options.library), os.environ.get('LD_PRELOAD', '')
    if loaded.startswith(library):  # not for the compilers that are started from here
        os.environ['LD_PRELOAD'] = loaded[len(library):].lstrip(':')
    elif options.memory == 'managed':
        os.execve(sys.executable, [sys.executable] + sys.orig_argv[1:], dict(
            os.environ, LD_PRELOAD=library + (loaded and ':' + loaded)))


class Worker:
    def __init__(self, options):
        self.options = options
        self.todo = json.loads(options.worker)
        for path in options.load:
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        self.core = core_part.Core(os.path.abspath(options.library))
        self.variants = [(name, os.path.abspath(path)) for name, _, path in
                         (one.partition('=') for one in options.variant)]
        self.torch = self.function = None
        self.failed, self.traces = {}, {}
        self.prepare()

    def prepare(self):
        """SGLang's kernel is compiled while the pool is filled and the traces are made."""
        other = threading.Thread(target=self.open_sglang)
        if not self.options.no_sglang:
            other.start()
        start = time.time()
        self.core.open_pool(max(self.pool_bytes(cell) for cell in self.todo),
                            core_part.MEMORY.index(self.options.memory))
        rows = self.core.rows
        say(note='pool %.1f GiB of %s memory in %.1f s' % (
            rows.bytes / 2**30, core_part.MEMORY[rows.kind], time.time() - start))
        start = time.time()
        for cell in self.todo:
            self.trace(cell)
        say(note='%d traces in %.1f s' % (len(self.traces), time.time() - start))
        if not self.options.no_sglang:
            other.join()
        if self.function:
            self.open_beside()

    def open_beside(self):
        """SGLang's host pool is registered memory, so its kernel reads that here, too."""
        start = time.time()
        try:
            self.core.open_beside()
        except core_part.Failed as error:
            say(note='no SGLang: %s' % error)
            self.function = None
        else:
            say(note="SGLang's pool of %s memory ready in %.1f s" % (self.memory()['sglang'],
                                                                     time.time() - start))

    def memory(self):
        """What each side reads: the gathers what ours does."""
        core = self.core
        found = {'ours': core_part.MEMORY[core.rows.kind]}
        if self.function:
            found['sglang'] = core_part.MEMORY[(core.beside if core.beside.start else
                                                core.rows).kind]
        return found

    def pool_bytes(self, cell):
        """What a cell's rows are spread over."""
        options = self.options
        return max(options.pool_mib << 20, core_part.least_pool(options.layers, cell['batch'],
                                                                options.ctx, cell['row']))

    def open_sglang(self):
        try:
            import swapin_sglang
            import torch
            start = time.time()
            function, version = swapin_sglang.load()
            rows = sorted({cell['row'] for cell in self.todo if cell['kind'] == 'table'})
            self.failed = swapin_sglang.build(torch, function, rows, self.options.hot,
                                              self.options.k, self.options.sglang_block)
            self.torch, self.function = torch, function
            say(note='SGLang %s: kernel ready in %.0f s%s' % (
                version, time.time() - start, ''.join(
                    '; %d bytes: %s' % one for one in self.failed.items())), sglang=version)
        except Exception as error:
            say(note='no SGLang: %s: %s' % (type(error).__name__, error))

    def trace(self, cell):
        options, key = self.options, (cell['batch'], cell['miss'])
        if key not in self.traces:
            steps = -(-options.hot // options.k) + 2 + sum(
                swapin_cells.lengths(options, *key))
            self.traces[key] = core_part.Lists(
                self.core.library, options.layers, steps, key[0], options.k, options.ctx,
                options.hot, (options.k * key[1] + 500) // 1000, options.churn, options.seed)
        return self.traces[key]

    def run(self):
        while self.todo:
            cell = self.todo.pop(0)
            say(start=cell)
            lists, before = self.trace(cell), None
            for name, library in [('', None)] + self.variants:
                before = self.measure(cell, lists, name, library, before)
            say(end=cell)
            if all((one['batch'], one['miss']) != (cell['batch'], cell['miss'])
                   for one in self.todo):
                self.traces.pop((cell['batch'], cell['miss'])).close()
        start = time.time()
        if not self.core.check_pool():
            say(note='THE POOL WAS WRITTEN TO', bad=True)
        say(note='pool looked through in %.1f s' % (time.time() - start))
        self.core.close()

    def measure(self, cell, lists, name, library, before):
        """One cell with one library; a variant stands beside what else the first one met."""
        result = dict(cell, variant=name, pool=self.pool_bytes(cell), memory=self.memory())
        clock, start = Clock(), time.time()
        try:
            result.update(self.cell(cell, lists, library, clock))
            for part in ('us', 'all', 'misses', 'gbps') if before and 'us' in before else ():
                result[part] = dict(before[part], **result[part])
        except Exception as error:
            result['error'] = '%s: %s' % (type(error).__name__, str(error)[-200:])
        result['seconds'] = round(time.time() - start, 2)
        result['phases'] = clock.rounded()
        say(cell=result)
        if 'error' in result and not self.core.alive():
            os._exit(3)  # the context is lost: another worker goes on
        return before or result

    def cell(self, spec, lists, library, clock):
        options, theirs = self.options, None
        beside = not library and spec['kind'] == 'table'
        rows = core_part.Rows(self.core.rows.start, self.pool_bytes(spec), self.core.rows.kind)
        with clock('open'):
            cell = core_part.Cell(self.core, lists, spec['row'], options.flush_mib << 20,
                                  options.policy, options.seed, spec['padding'],
                                  spec['resident'], options.eager, rows, library,
                                  options.sorted_gather and beside, options.flush_reads)
        try:
            sides = (OURS, GATHER, EMPTY) if beside else (OURS, EMPTY)
            sides += (ORDERED,) if options.sorted_gather and beside else ()
            with clock('record'):
                for side in sides:
                    cell.record(side)
            if GATHER in sides and self.function and spec['row'] not in self.failed:
                with clock('open sglang'):
                    theirs = self.sglang_side(cell)
            return self.steps(cell, theirs, sides, lists, clock, spec['miss'])
        finally:
            theirs = None
            with clock('close'):
                cell.close()
                if self.torch and not library:
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

    def steps(self, cell, theirs, sides, lists, clock, miss):
        trace = lists.trace
        warm = lists.warm + swapin_cells.lengths(self.options, trace.batch, miss)[0]
        names = ['ours'] + (['sglang'] if theirs else [])
        more = [core_part.SIDES[side] for side in sides if side != OURS]
        sums = Sums(names + more)

        def call(name, timed, sweep):
            with clock(name):
                before = cell.counts().misses
                if name == 'sglang':
                    us, swapped = theirs.replay(timed or sweep)
                else:
                    us = cell.replay(core_part.SIDES.index(name))
                    swapped = cell.counts().misses - before
            with clock('check'):
                checked = {'ours': cell.check, 'sglang': theirs and theirs.check,
                           'gather': cell.check_gather, 'empty': lambda: None,
                           'ordered': lambda: cell.check_gather(ORDERED)}[name]()
            sums.add(name, us, swapped, checked, timed)
            return swapped

        for step in range(trace.steps):
            with clock('load'):
                cell.load(step)
            timed = warm <= step < lists.timed
            if self.options.profile and step in (warm, lists.timed):
                driver = ctypes.CDLL('libcuda.so.1')
                switch = 'cuProfilerStart' if timed else 'cuProfilerStop'
                if hasattr(driver, switch):  # the stand-in has none
                    getattr(driver, switch)()
            order = names + (more if timed else [])
            # Who goes first finds the pages cold in the GPU's TLB: take turns.
            turn = step % len(order) if timed else 0
            for name in order[turn:] + order[:turn]:
                swapped = call(name, timed, step >= lists.timed)
                if step >= lists.timed:
                    sums.swept[name] = sums.swept.get(name, 0) - swapped
            for layer in range(trace.layers if timed else 0):
                first = (step * trace.layers + layer) * trace.batch
                sums.lru += sum(lists.misses[first:first + trace.batch - cell.plan.padding])
        return self.result(cell, sums, lists, lists.timed - warm, clock)

    def result(self, cell, sums, lists, timed, clock):
        trace = lists.trace
        calls, entries = trace.layers * timed, trace.layers * trace.batch * trace.k
        swept = (trace.steps - lists.timed) * trace.layers * trace.k * (
            trace.batch - cell.plan.padding)
        us = {name: spread(values) for name, values in sums.us.items()}
        misses = {name: sums.misses[name] for name in ('ours', 'sglang') if name in us}
        misses['lru'] = sums.lru
        found = {'us': us, 'misses': misses, 'inplace': sums.inplace, 'calls': calls,
                 'entries': entries * timed, 'gbps': {}, 'all': {}, 'checked': sums.checked,
                 'swept': {name: swept + less for name, less in sums.swept.items()}}
        found['right'] = {
            name: total[core_part.BAD_INDEX] == 0 and total[core_part.BAD_BYTES] == 0 and
            (name in ('gather', 'ordered') or sum(total) == entries * sums.replays[name])
            for name, total in sums.checked.items() if name != 'empty'}
        floor = spread(sums.steps['empty'])['median']
        for name in us:
            # A call and what it leaves behind it, whatever else is in a step taken off.
            found['all'][name] = us['empty']['median'] + (
                spread(sums.steps[name])['median'] - floor) / trace.layers
        for name in ('ours', 'sglang', 'gather', 'ordered'):
            moved = misses.get(name if name in ('ours', 'sglang') else 'lru', 0) / calls * cell.row
            if name in us and us[name]['median'] > 0 and moved:
                found['gbps'][name] = moved / us[name]['median'] / 1e3
        with clock('host'):
            found['host_ns'] = cell.host_ns(self.options.host_calls)
            found['host_empty_ns'] = cell.host_ns(self.options.host_calls, True)
        return found
