# SPDX-License-Identifier: MIT
"""What the swap-in figures must reach, and how they are shown."""

# Times faster than SGLang's kernel, 656-byte rows: {batches: {miss rate in per mille: ratio}}.
RATIOS = {
    (1,): {0: 4.0, 1: 3.0, 134: 3.5, 200: 3.5},
    (16,): {0: 4.0, 1: 3.0, 134: 1.6, 200: 1.5},
    (64, 100, 256): {0: 3.0, 1: 2.5, 134: 1.8, 200: 1.8},
}
FETCH = {656: 40.0, 1152: 48.0}  # GB/s at batch >= 64, over 15 GiB, where fetching is the work
FETCH_FROM = 134                 # per mille
FETCH_POOL = 15 << 30


def goals(cell):
    """[(goal, met)] of a cell: a dictionary as swapin.py prints it."""
    found = []
    if cell.get('error'):
        return found
    if cell['kind'] != 'table':
        return found
    ours, theirs, gather = (cell['us'].get(side) for side in ('ours', 'sglang', 'gather'))
    if not ours or ours['median'] < 0:
        return found
    if not cell['right']['ours']:
        return [('right rows', False)]
    if theirs:
        ratio = theirs['median'] / ours['median']
        found.append(('no slower than SGLang', ratio >= 1))
        for batches, rates in RATIOS.items():
            want = rates.get(cell['miss'])
            if cell['row'] != 656 or cell['batch'] not in batches or not want:
                continue
            met = ratio >= want
            text = '%.1fx SGLang' % want
            if cell['miss'] == 1 and cell['batch'] >= 64 and gather:
                met = met or ours['median'] <= gather['median']
                text += ' or the gather'
            found.append((text, met))
    want = FETCH.get(cell['row'])
    if want and cell['batch'] >= 64 and cell['miss'] >= FETCH_FROM and cell['pool'] >= FETCH_POOL:
        found.append(('%.0f GB/s' % want, cell['gbps']['ours'] >= want))
    return found


def figure(cell, side):
    us = cell['us'].get(side)
    if not us or us['median'] < 0:
        return '%17s' % '-'
    return '%8.1f (%.0f-%.0f)' % (us['median'], us['p10'], us['p90'])


HEAD = ('%4s %4s %6s | %-20s %-20s %-20s | %6s %6s | %5s %5s %5s | %8s %8s %8s %7s | %7s | %s' % (
    'row', 'b', 'miss', 'ours us', 'SGLang us', 'gather us', 'SGLang', 'gather', 'ours', 'SGL',
    'gath', 'ours', 'SGLang', 'LRU', 'inplace', 'us', 'goals'))
UNITS = ('%4s %4s %6s | %-20s %-20s %-20s | %13s | %17s | %34s | %7s |' % (
    '', '', '', 'median (p10-p90)', '', '', 'times ours', 'GB/s', 'rows swapped in', 'all in'))


ORDERED_HEAD, ORDERED_UNITS = ('%-20s %6s %5s | ' % one for one in (
    ('ordered us', 'ordrd', 'ordrd'), ('median (p10-p90)', '/ ours', 'GB/s')))


def heads(ordered):
    """Two lines; with the columns of the gather by address, if a cell has one."""
    if not ordered:
        return [UNITS, HEAD]
    return [UNITS + ' ' + ORDERED_UNITS.rstrip(), HEAD[:-len('goals')] + ORDERED_HEAD + 'goals']


def line(cell, wide=None):
    """wide: with columns for the gather by address, as it is where the cell has one."""
    start = '%4d %4d %5.1f%% | ' % (cell['row'], cell['batch'], cell['miss'] / 10)
    if cell.get('error'):
        return start + ' '.join([cell['variant'], cell['error']])
    us, rate = cell['us'], cell['gbps']

    def times(side):
        pair = us.get(side), us.get('ours')
        if not all(pair) or min(one['median'] for one in pair) <= 0:
            return '%6s' % '-'
        return '%5.2fx' % (pair[0]['median'] / pair[1]['median'])

    def speed(side):
        return '%5.1f' % rate[side] if side in rate else '%5s' % '-'

    def rows(side):
        return '%8d' % cell['misses'][side] if side in cell['misses'] else '%8s' % '-'

    wrong = [side for side, right in cell['right'].items() if not right]
    marks = [cell['variant']] if cell['variant'] else []
    marks += [cell['kind']] if cell['kind'] != 'table' else []
    marks += ['%d lists of -1' % cell['padding']] if cell['padding'] else []
    marks += ['%s %s' % ('met' if met else 'MISSED', text) for text, met in goals(cell)]
    marks += ['WRONG ROWS: ' + side for side in wrong]
    ordered = ''
    if 'ordered' in us if wide is None else wide:
        ordered = '%-20s %s %s | ' % (figure(cell, 'ordered'), times('ordered'), speed('ordered'))
    return start + '%-20s %-20s %-20s | %s %s | %s %s %s | %s %s %s %7d | %7.1f | %s%s' % (
        figure(cell, 'ours'), figure(cell, 'sglang'), figure(cell, 'gather'), times('sglang'),
        times('gather'), speed('ours'), speed('sglang'), speed('gather'), rows('ours'),
        rows('sglang'), rows('lru'), cell['inplace'], cell['all']['ours'], ordered, '; '.join(marks))


def reads(cells):
    """Lines that say of what kind the host memory of each side is."""
    for ours, theirs in sorted({(cell['memory']['ours'], cell['memory'].get('sglang', ''))
                                for cell in cells if 'memory' in cell}):
        yield 'ours and the gathers read %s memory%s' % (
            ours, theirs and ", SGLang's kernel %s memory" % theirs)


def middle(values):
    return sorted(values)[len(values) // 2]


def padding(cells):
    """What lists of -1 cost: [(cell with them, cell without them)]."""
    kind = [cell for cell in cells if cell['kind'] == 'padding']
    return [(one, other) for one in kind for other in kind
            if one['padding'] and one['batch'] - one['padding'] == other['batch'] and
            all(one[part] == other[part] for part in ('miss', 'row', 'variant'))]


def notes(cells):
    """What is said beside the table."""
    good = [cell for cell in cells if not cell.get('error')]
    for name in sorted({cell['variant'] for cell in good}):
        mine = [cell for cell in good if cell['variant'] == name]
        on = [cell for cell in mine if not cell['resident']] or mine
        yield '%sempty launch in the same graph %.1f us; host time of a resolve %.2f us, of an ' \
              'empty launch %.2f us' % (
                  name and name + ': ', middle([cell['us']['empty']['median'] for cell in mine]),
                  middle([cell['host_ns'] for cell in on]) / 1e3,
                  middle([cell['host_empty_ns'] for cell in on]) / 1e3)
        for cell in mine:
            if cell['resident']:
                yield '%searly exit at batch %d: %.1f us, empty launch %.1f us' % (
                    name and name + ': ', cell['batch'], cell['us']['ours']['median'],
                    cell['us']['empty']['median'])
    for one, other in padding(good):
        yield '%sbatch %d with %d lists of -1: %.1f us, %d rows read; batch %d without: %.1f us, ' \
              '%d rows read; %.1f %% miss' % (
                  one['variant'] and one['variant'] + ': ', one['batch'], one['padding'],
                  one['us']['ours']['median'], one['misses']['ours'], other['batch'],
                  other['us']['ours']['median'], other['misses']['ours'], one['miss'] / 10)
    spent = {}
    for cell in cells:
        for phase, seconds in cell.get('phases', {}).items():
            spent[phase] = spent.get(phase, 0) + seconds
    yield 'seconds: ' + ', '.join('%s %.1f' % one for one in sorted(
        spent.items(), key=lambda one: -one[1]))


def table(cells):
    ordered = sorted(cells, key=lambda cell: (cell['kind'] != 'table', cell['row'] != 656,
                                              cell['row'], cell['batch'], cell['miss']))
    wide = any('ordered' in cell.get('us', {}) for cell in cells)
    lines = list(reads(cells)) + heads(wide) + [line(cell, wide) for cell in ordered]
    lines += notes(ordered)
    marks = [met for cell in cells for _, met in goals(cell)]
    lines.append('goals: %d met, %d missed; cells: %d, %d failed, %d with wrong rows' % (
        sum(marks), len(marks) - sum(marks), len(cells),
        sum(bool(cell.get('error')) for cell in cells),
        sum(not all(cell.get('right', {}).values()) for cell in cells)))
    swept = [cell for cell in cells if cell.get('swept', {}).get('ours')]
    if swept:
        lines.append('hot rows that the sweep after the last step found, and found right: %d' %
                     sum(cell['swept']['ours'] for cell in swept))
    return '\n'.join(lines)
