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


HEAD = ('%4s %4s %6s | %-20s %-20s %-20s | %6s %6s | %5s %5s %5s | %8s %8s %8s %7s | %s' % (
    'row', 'b', 'miss', 'ours us', 'SGLang us', 'gather us', 'SGLang', 'gather', 'ours', 'SGL',
    'gath', 'ours', 'SGLang', 'LRU', 'inplace', 'goals'))
UNITS = ('%4s %4s %6s | %-20s %-20s %-20s | %13s | %17s | %34s |' % (
    '', '', '', 'median (p10-p90)', '', '', 'times ours', 'GB/s', 'rows swapped in'))


def line(cell):
    start = '%4d %4d %5.1f%% | ' % (cell['row'], cell['batch'], cell['miss'] / 10)
    if cell.get('error'):
        return start + cell['error']
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
    marks = ['%s %s' % ('met' if met else 'MISSED', text) for text, met in goals(cell)]
    marks += ['WRONG ROWS: ' + side for side in wrong]
    return start + '%-20s %-20s %-20s | %s %s | %s %s %s | %s %s %s %7d | %s' % (
        figure(cell, 'ours'), figure(cell, 'sglang'), figure(cell, 'gather'), times('sglang'),
        times('gather'), speed('ours'), speed('sglang'), speed('gather'), rows('ours'),
        rows('sglang'), rows('lru'), cell['inplace'], '; '.join(marks))


def table(cells):
    ordered = sorted(cells, key=lambda cell: (cell['row'] != 656, cell['row'], cell['batch'],
                                              cell['miss']))
    lines = [UNITS, HEAD] + [line(cell) for cell in ordered]
    marks = [met for cell in cells for _, met in goals(cell)]
    lines.append('goals: %d met, %d missed; cells: %d, %d failed, %d with wrong rows' % (
        sum(marks), len(marks) - sum(marks), len(cells),
        sum(bool(cell.get('error')) for cell in cells),
        sum(not all(cell.get('right', {}).values()) for cell in cells)))
    return '\n'.join(lines)


def results(cell, head):
    """The cell as lines for tests/gpu/results.jsonl."""
    for side in ('ours', 'sglang', 'gather'):
        us = cell.get('us', {}).get(side)
        if not us or us['median'] < 0:
            continue
        others = ['%s %.1f us' % (other, cell['us'][other]['median'])
                  for other in ('ours', 'sglang', 'gather') if other != side and
                  other in cell['us']]
        yield dict(head, figure='swap-in per call, %s, %d-byte rows, batch %d, %.1f %% miss' % (
            side, cell['row'], cell['batch'], cell['miss'] / 10), value=round(us['median'], 2),
            unit='us', beside=', '.join(others))
