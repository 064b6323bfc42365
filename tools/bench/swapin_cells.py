# SPDX-License-Identifier: MIT
"""Which cells are measured. A cell is a dictionary: kind, row, batch, miss (per mille of k),
padding (lists at the end of the batch that are -1), resident (layers that never start)."""

BATCHES = (1, 16, 64, 100, 256)
MISSES = (0, 1, 134, 200)
SETS = ('table', 'rows', 'extras', 'quick', 'tiny')


def cell(kind, row, batch, miss, padding=0, resident=False):
    return {'kind': kind, 'row': row, 'batch': batch, 'miss': miss, 'padding': padding,
            'resident': resident}


def cells_of(name):
    if name == 'table':
        return [cell('table', 656, batch, miss) for batch in BATCHES for miss in MISSES]
    if name == 'rows':
        return [cell('table', row, batch, miss) for batch in (16, 64, 256)
                for miss in (134, 200) for row in (512, 1152)]
    if name == 'quick':
        return [cell('table', 656, batch, miss) for batch, misses in
                ((1, (1, 134)), (16, (0, 1, 134)), (64, MISSES)) for miss in misses]
    if name == 'tiny':  # for tools that slow kernels down
        return [cell('table', 656, 4, miss) for miss in (1, 134)]
    return [one for miss in (1, 134)
            for one in (cell('padding', 656, 32, miss, 25), cell('padding', 656, 7, miss))] + [
        cell('resident', 656, batch, 1, 0, True) for batch in (1, 16, 64)]


def choose(options):
    """The cells of the named sets, or the product of the lists that were given."""
    if options.rows or options.batch or options.miss:
        return [cell('table', row, batch, miss, options.padding, options.resident)
                for batch in options.batch or BATCHES for miss in options.miss or MISSES
                for row in options.rows or (656,)]
    found = []
    for name in options.set:
        found += [one for one in cells_of(name) if one not in found]
    return found


def lengths(options, batch, miss):
    """Steps before the timed ones in a full cache, and timed ones. Large batches have many misses,
    and each takes long. With few misses it takes long until what filled the caches is forgotten:
    rows of one age, of which a policy by step and the trace's own may choose differently, and a
    row that the trace takes for cached is missed then (at batch 8 an exact LRU by step over all
    requests misses 2.0 times as many as the trace says after 16 steps, 1.06 after 60)."""
    large = batch >= 100
    settle = 60 if miss <= 10 else 8 if large else 16
    return (options.settle if options.settle is not None else settle,
            options.steps if options.steps is not None else 10 if large else 16)
