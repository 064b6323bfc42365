#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turn what `tools/bench/swapin.py --json` wrote into lines of tests/gpu/results.jsonl and a table.

usage: tools/bench/swapin_report.py JSON... [--results FILE] [--variant NAME] [--command TEXT]

The table (Markdown, on standard output) has a row for each batch and side and a column for each miss
rate. --results appends every figure of cells whose rows were all right; the figures are those of
tests/gpu/record. A later file's cell replaces an earlier one's. --variant: of that library, not of
the first. --command: what the lines are to say instead of the bench's own call.
"""
import argparse
import json
import sys

SIDES = (('ours', 'ours'), ('sglang', 'SGLang'), ('gather', 'gather'),
         ('ordered', 'gather by address'))


def read(paths, variant):
    found = {}
    for path in paths:
        with open(path, encoding='utf-8') as file:
            for line in file:
                cell = json.loads(line)
                if cell['variant'] == variant:
                    found[tuple(cell[part] for part in (
                        'kind', 'row', 'batch', 'miss', 'padding', 'resident'))] = cell
    return [found[key] for key in sorted(found)]


def sound(cell):
    return not cell.get('error') and all(cell['right'].values()) and (
        cell['resident'] or cell['us']['ours']['median'] >= 0)


def figure(name, value, unit, beside):
    return {'figure': name, 'value': round(value, 2), 'unit': unit, 'beside': beside}


def memory(cell, side):
    """Files from before there was a choice do not say it: it was registered."""
    return cell.get('memory', {}).get('sglang' if side == 'sglang' else 'ours', 'registered')


def table_figures(cell):
    what = '%d-byte rows, batch %d, %.1f %% miss' % (cell['row'], cell['batch'], cell['miss'] / 10)
    for side, name in SIDES:
        us = cell['us'].get(side)
        if not us:
            continue
        others = ['from %s memory' % memory(cell, side)]
        others += ['%s %.1f us%s' % (
            other, cell['us'][key]['median'], '' if memory(cell, key) == memory(cell, side)
            else ' from %s memory' % memory(cell, key))
                   for key, other in SIDES if key != side and key in cell['us']]
        others.append('p10-p90 %.1f-%.1f' % (us['p10'], us['p90']))
        if side in cell['misses']:
            others.append('%d rows swapped in, exact LRU %d' % (cell['misses'][side],
                                                                cell['misses']['lru']))
        yield figure('swap-in per call, %s, %s' % (name, what), us['median'], 'us',
                     ', '.join(others))
        if side in cell['gbps'] and cell['miss'] >= 100:
            yield figure('swap-in rate, %s, %s' % (name, what), cell['gbps'][side], 'GB/s',
                         'pool of %.1f GiB of %s memory' % (cell['pool'] / 2**30,
                                                            memory(cell, side)))


def figures(cells):
    for cell in cells:
        if not sound(cell):
            continue
        floor = 'empty launch %.1f us' % cell['us']['empty']['median']
        if cell['kind'] == 'table':
            yield cell, from_table(cell)
        elif cell['kind'] == 'resident':
            yield cell, [figure('early exit of a layer that does not swap, batch %d' %
                                cell['batch'], cell['us']['ours']['median'], 'us', floor)]
        else:
            yield cell, [
                figure('swap-in per call, batch %d, %d lists of -1, %.1f %% miss' % (
                    cell['batch'], cell['padding'], cell['miss'] / 10),
                    cell['us']['ours']['median'], 'us',
                    'from %s memory, %s' % (memory(cell, 'ours'), floor)),
                figure('rows read, batch %d, %d lists of -1, %.1f %% miss' % (
                    cell['batch'], cell['padding'], cell['miss'] / 10),
                    cell['misses']['ours'], 'rows', 'exact LRU of the real lists %d' %
                    cell['misses']['lru'])]


def from_table(cell):
    found = list(table_figures(cell))
    found.append(figure('host time of a resolve, %d-byte rows, batch %d, %.1f %% miss' % (
        cell['row'], cell['batch'], cell['miss'] / 10), cell['host_ns'] / 1e3, 'us',
        'empty launch %.2f us' % (cell['host_empty_ns'] / 1e3)))
    return found


def markdown(cells):
    for row in sorted({cell['row'] for cell in cells}, key=lambda row: (row != 656, row)):
        mine = {(cell['batch'], cell['miss']): cell for cell in cells if cell['row'] == row}
        misses = sorted({miss for _, miss in mine})
        kinds = sorted({(memory(cell, 'ours'), memory(cell, 'sglang')) for cell in mine.values()})
        yield '%d-byte rows (us, in brackets GB/s; host memory: %s):' % (row, '; '.join(
            ours if ours == theirs else '%s, of SGLang %s' % (ours, theirs)
            for ours, theirs in kinds))
        yield ''
        yield '| batch | who | ' + ' | '.join(
            'hits only' if miss == 0 else '%.1f %% miss' % (miss / 10) for miss in misses) + ' |'
        yield '|---|---|' + '---|' * len(misses)
        for batch in sorted({batch for batch, _ in mine}):
            for side, name in SIDES:
                if not any(side in cell['us'] for key, cell in mine.items() if key[0] == batch):
                    continue
                yield '| %s | %s | %s |' % (batch if side == 'ours' else '', name, ' | '.join(
                    entry(mine.get((batch, miss)), side) for miss in misses))
        yield ''


def entry(cell, side):
    if not cell or side not in cell['us']:
        return ''
    text = '%.1f' % cell['us'][side]['median']
    if side in cell['gbps'] and cell['miss'] >= 100:
        text += ' (%.0f)' % cell['gbps'][side]
    if side == 'ours' and 'sglang' in cell['us']:
        text += ', %.1fx' % (cell['us']['sglang']['median'] / cell['us']['ours']['median'])
    return text


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('json', nargs='+')
    parser.add_argument('--results')
    parser.add_argument('--variant', default='')
    parser.add_argument('--command')
    options = parser.parse_args()
    cells = read(options.json, options.variant)
    bad = [cell for cell in cells if not sound(cell)]
    for cell in bad:
        print('left out: %s, row %d, batch %d, miss %d: %s' % (
            cell['kind'], cell['row'], cell['batch'], cell['miss'],
            cell.get('error') or cell['right']), file=sys.stderr)
    print('\n'.join(markdown([cell for cell in cells if sound(cell) and
                              cell['kind'] == 'table'])))
    lines = []
    for cell, found in figures(cells):
        for one in found:
            lines.append(dict({part: cell[part] for part in ('date', 'device', 'driver')},
                              command=options.command or cell['command'], **one))
            if cell['kind'] != 'table':
                print('%(figure)s: %(value)s %(unit)s (%(beside)s)' % one)
    if options.results:
        with open(options.results, 'a', encoding='utf-8') as file:
            file.writelines(json.dumps(line) + '\n' for line in lines)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
