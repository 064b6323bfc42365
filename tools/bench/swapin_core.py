# SPDX-License-Identifier: MIT
"""The benchmark's C part: the device, the pool, traces and cells."""

import ctypes
import os
import shutil
import tempfile
from ctypes import byref, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

OURS, THEIRS, GATHER, EMPTY, ORDERED = range(5)
SIDES = ('ours', 'sglang', 'gather', 'empty', 'ordered')
HOT, IN_PLACE, PADDING, BAD_INDEX, BAD_BYTES = range(5)


class Trace(ctypes.Structure):
    _fields_ = [('layers', c_uint32), ('steps', c_uint32), ('batch', c_uint32), ('k', c_uint32),
                ('ctx', c_uint64), ('positions', c_void_p)]


class TracePlan(ctypes.Structure):
    _fields_ = [('hot', c_uint32), ('misses', c_uint32), ('churn', c_uint32), ('seed', c_uint64),
                ('sweep', c_uint32)]


REGISTERED, MANAGED, BESIDE = range(3)
MEMORY = ('registered', 'managed', 'registered')


class Rows(ctypes.Structure):
    _fields_ = [('start', c_void_p), ('bytes', c_uint64), ('kind', c_uint32)]


class Plan(ctypes.Structure):
    _fields_ = [('trace', ctypes.POINTER(Trace)), ('misses', c_void_p), ('missed', c_void_p),
                ('rows', Rows), ('beside', c_void_p), ('own', c_uint64), ('flush', c_uint64),
                ('seed', c_uint64), ('hot', c_uint32), ('row', c_uint32), ('policy', c_uint32),
                ('padding', c_uint32), ('resident', c_uint32), ('eager', c_uint32),
                ('reads', c_uint32), ('ordered', c_uint32)]


class View(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in
                ('positions', 'slots', 'window', 'stream', 'slot_count', 'any_order')]


class Counts(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in
                ('launches', 'hits', 'misses', 'duplicates', 'inplace', 'evictions',
                 'invalidated', 'padding', 'bytes', 'staged')]


class Failed(Exception):
    pass


def need(what, result):
    if result:
        raise Failed('%s: %s' % (what, os.strerror(-result)))


def pages_up(size):
    return (size + (2 << 20) - 1) & ~((2 << 20) - 1)


def window_bytes(batch, ctx, row):
    """Bytes of one layer's window (place.h)."""
    skip = ((2 << 20) + row - 1) // row
    return pages_up(((skip + 63) // 64 * 64 + batch * ctx) * row)


def least_pool(layers, batch, ctx, row):
    """Windows may overlap, but each layer is known by where its own begins."""
    return window_bytes(batch, ctx, row) + (layers - 1) * pages_up(1)


class Lists:
    """A trace, and what an exact LRU of `hot` rows misses in it. The last steps, behind those
    that are timed, select every row that the LRU holds then."""

    def __init__(self, library, layers, steps, batch, k, ctx, hot, misses, churn, seed):
        self.library, self.hot, self.timed = library, hot, steps
        sweep = -(-hot // k)
        self.trace = Trace(layers, steps + sweep, batch, k, ctx, None)
        need('trace', library.hs_dsat_init(byref(self.trace)))
        plan = TracePlan(hot, misses, churn, seed, sweep)
        need('trace', library.hs_dsat_generate(byref(self.trace), byref(plan)))
        self.misses = (c_uint32 * ((steps + sweep) * layers * batch))()
        self.missed = (c_int32 * (len(self.misses) * k))()
        need('trace', library.hs_dsat_check(byref(self.trace), hot, self.misses, self.missed))
        self.warm = library.hs_dsat_warm(byref(self.trace), hot)
        first, last = (step * layers * batch for step in (self.warm, steps))
        if set(self.misses[first:last]) != {misses} or any(self.misses[last:]):
            raise Failed('the trace has other miss counts than planned')

    def close(self):
        self.library.hs_dsat_finish(byref(self.trace))
        self.misses = self.missed = None


class Core:
    """The device and the pool. Cells run on copies of the library (Cell)."""

    def __init__(self, path):
        self.path = path
        self.library = ctypes.CDLL(path)
        need('device', self.library.hs_swapin_device())
        self.rows, self.beside = Rows(), Rows()

    def alive(self):
        return self.library.hs_swapin_alive() == 0

    def open_pool(self, size, kind=MANAGED):
        need('host pool', self.library.hs_rows_open(byref(self.rows), c_uint64(size), kind))

    def open_beside(self):
        """The same bytes in registered memory, for others than ours: they read that kind."""
        if self.rows.kind == MANAGED and not self.beside.start:
            need('second host pool', self.library.hs_rows_open(
                byref(self.beside), c_uint64(self.rows.bytes), BESIDE))

    def pools(self):
        return [rows for rows in (self.rows, self.beside) if rows.start]

    def check_pool(self):
        return not any(self.library.hs_rows_check(byref(rows)) for rows in self.pools())

    def close(self):
        for rows in self.pools():
            self.library.hs_rows_close(byref(rows))


class Cell:
    """One cell. The library keeps its state for the life of a process, so each cell loads a copy
    of its own and starts as a fresh process would."""

    def __init__(self, core, lists, row, flush, policy, seed, padding, resident, eager,
                 rows, library=None, ordered=False, reads=False):
        import _ctypes
        self.unload = _ctypes.dlclose
        self.lists, self.row, self.cell = lists, row, c_void_p()
        with tempfile.NamedTemporaryFile(suffix='.so', delete=False) as copy:
            path = copy.name
        try:
            shutil.copy(library or core.path, path)
            self.library = ctypes.CDLL(path)
        finally:
            os.unlink(path)
        self.library.hs_swapin_close.argtypes = [c_void_p]
        trace = lists.trace
        slots = window_bytes(trace.batch, trace.ctx, row) // row
        most = trace.batch * (lists.hot + trace.k)
        own = trace.layers * (slots * 8 + most * 64) + (64 << 20)
        self.plan = Plan(ctypes.pointer(trace), ctypes.addressof(lists.misses),
                         ctypes.addressof(lists.missed),
                         rows, core.beside.start, own, flush, seed, lists.hot, row, policy,
                         padding, resident, eager, reads, ordered)
        try:
            need('device', self.library.hs_swapin_device())
            need('cell', self.library.hs_swapin_open(byref(self.cell), byref(self.plan)))
        except Failed:
            self.unload(self.library._handle)
            raise

    def close(self):
        self.library.hs_swapin_close(self.cell)
        self.unload(self.library._handle)

    def view(self, layer):
        view = View()
        need('view', self.library.hs_swapin_view(self.cell, layer, byref(view)))
        return view

    def table(self):
        """int64 [batch][ctx]: the slot of every position."""
        table = (c_int64 * (self.lists.trace.batch * self.lists.trace.ctx))()
        self.library.hs_swapin_table(self.cell, table)
        return table

    def record(self, side):
        need('record ' + SIDES[side], self.library.hs_swapin_record(self.cell, side))

    def begin(self):
        need('capture', self.library.hs_swapin_begin(self.cell))

    def mark(self, side, layer, edge):
        need('mark', self.library.hs_swapin_mark(self.cell, side, layer, edge))

    def end(self, side):
        need('capture', self.library.hs_swapin_end(self.cell, side))

    def load(self, step):
        need('load', self.library.hs_swapin_load(self.cell, step))

    def replay(self, side):
        """Times of the loaded step: one a layer, then the whole step."""
        us = (c_float * (self.lists.trace.layers + 1))()
        need('replay ' + SIDES[side], self.library.hs_swapin_replay(self.cell, side, us))
        return list(us)

    def check(self):
        """Results over all layers of our last replay."""
        return self._sums(self.library.hs_swapin_check)

    def check_gather(self, side=GATHER):
        """Results of the last layer that a gather fetched."""
        return self._sums(self.library.hs_swapin_check_gather, side)

    def check_other(self, indices, bases, count):
        """The same for indices and the first hot row of each layer."""
        each = c_uint64 * self.lists.trace.layers
        return self._sums(self.library.hs_swapin_check_other, each(*indices), each(*bases), count)

    def _sums(self, call, *more):
        result = (c_uint32 * 5)()
        need('check', call(self.cell, *more, result))
        return list(result)

    def counts(self):
        counts = Counts()
        need('counts', self.library.hs_swapin_counts(self.cell, byref(counts)))
        return counts

    def host_ns(self, calls, empty=False):
        ns = c_double()
        need('host time', self.library.hs_swapin_host(self.cell, calls, empty, byref(ns)))
        return ns.value
