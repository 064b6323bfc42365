# SPDX-License-Identifier: MIT
"""SGLang's swap-in kernel, from its installed package, on a cell's rows.

The interface is that of SGLang 0.5.17, sglang.kernels.ops.kvcache.hisparse: one launch per layer,
one block of threads per request; positions in, rows of the request's device buffer out.
"""

import ctypes
import importlib.machinery
import importlib.metadata
import os
import sys
import types

from swapin_core import THEIRS, Failed

PAGE = 64  # rows behind the hot ones, the first of them for the newest token


def load():
    """The function, and its version. Only the kernel's own modules are imported: the package's
    __init__ starts the serving stack and patches torch and transformers."""
    if 'sglang' not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec('sglang')
        if spec is None:
            raise ImportError('no sglang on PYTHONPATH')
        package = types.ModuleType('sglang')
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules['sglang'] = package
    from sglang.kernels.ops.kvcache.hisparse import load_cache_to_device_buffer_mla
    return load_cache_to_device_buffer_mla, importlib.metadata.version('sglang')


class DeviceArray:
    """Device memory of the cell, as torch takes it over."""

    def __init__(self, address, shape, kind):
        self.__cuda_array_interface__ = {'data': (address, False), 'shape': shape,
                                         'typestr': kind, 'version': 3}


class State:
    """The tables of `batch` requests in one layer, caches empty."""

    def __init__(self, torch, batch, hot, row, k):
        ints = dict(dtype=torch.int32, device='cuda')
        self.buffer = torch.full((batch * hot + PAGE, row), 0xee, dtype=torch.uint8, device='cuda')
        self.tokens = torch.full((batch, hot + PAGE), -1, **ints)
        first = torch.arange(batch, **ints).view(-1, 1) * hot
        spare = torch.arange(PAGE, **ints).view(1, -1).expand(batch, -1) + batch * hot
        self.locs = torch.cat([first + torch.arange(hot, **ints), spare], 1).contiguous()
        self.lru = torch.arange(hot, dtype=torch.int16, device='cuda').repeat(batch, 1)
        self.out = torch.full((batch, k), -7, **ints)


class Call:
    """Everything that is the same for all layers."""

    def __init__(self, torch, function, batch, real, hot, row, k, ctx, block):
        self.function = function
        self.requests = torch.arange(batch, dtype=torch.int64, device='cuda')
        # The newest token has a row of its own in SGLang and is always a hit: it is the position
        # behind the last that the lists hold, so that every listed one goes through the cache.
        self.lengths = torch.full((batch,), ctx + 1, dtype=torch.int64, device='cuda')
        self.real = torch.tensor([real], dtype=torch.int32, device='cuda')
        self.fixed = dict(item_size_bytes=row, num_top_k=k, hot_buffer_size=hot, page_size=1,
                          block_size=block)

    def __call__(self, positions, state, table, host):
        self.function(top_k_tokens=positions, device_buffer_tokens=state.tokens,
                      host_cache_locs=table, device_buffer_locs=state.locs, host_cache=host,
                      device_buffer=state.buffer, top_k_device_locs=state.out,
                      req_pool_indices=self.requests, seq_lens=self.lengths,
                      lru_slots=state.lru, num_real_reqs=self.real, **self.fixed)


def build(torch, function, rows, hot, k, block):
    """Compiles and loads the kernel for the row sizes, all at once: a launch that is captured
    must find it loaded. Returns the row sizes that failed, with the reason."""
    from concurrent.futures import ThreadPoolExecutor
    from sglang.kernels.jit.utils import get_jit_cuda_arch

    # Each compilation sets this and takes it back, under the feet of the others.
    os.environ.setdefault('TVM_FFI_CUDA_ARCH_LIST', get_jit_cuda_arch().target_name)

    def one(row):
        ctx = hot + k
        state = State(torch, 1, hot, row, k)
        host = torch.zeros((ctx, row), dtype=torch.uint8).pin_memory()
        table = torch.arange(ctx, dtype=torch.int64, device='cuda').view(1, ctx)
        positions = torch.arange(k, dtype=torch.int32, device='cuda').view(1, k)
        Call(torch, function, 1, 1, hot, row, k, ctx, block)(positions, state, table, host)
        torch.cuda.synchronize()

    failed = {}
    with ThreadPoolExecutor(len(rows)) as pool:
        for row, job in [(row, pool.submit(one, row)) for row in rows]:
            try:
                job.result()
            except Exception as error:
                failed[row] = '%s: %s' % (type(error).__name__, str(error)[-300:])
    return failed


class Side:
    """The cell's other side: SGLang's kernel, recorded between the cell's marks."""

    def __init__(self, torch, function, cell, block):
        trace, self.torch, self.cell, self.hot = cell.lists.trace, torch, cell, cell.lists.hot
        views = [cell.view(layer) for layer in range(trace.layers)]
        size = views[0].slot_count * cell.row
        shape = (trace.batch, trace.k)
        self.positions = [torch.as_tensor(DeviceArray(view.positions, shape, '<i4'), device='cuda')
                          for view in views]
        if any(mine.data_ptr() != view.positions for mine, view in zip(self.positions, views)):
            raise Failed('torch copied the lists')
        self.host = [torch.frombuffer((ctypes.c_uint8 * size).from_address(view.window),
                                      dtype=torch.uint8) for view in views]
        self.table = torch.frombuffer(cell.table(), dtype=torch.int64).view(
            trace.batch, trace.ctx).cuda()
        self.states = [State(torch, trace.batch, self.hot, cell.row, trace.k) for _ in views]
        self.call = Call(torch, function, trace.batch, trace.batch - cell.plan.padding, self.hot,
                         cell.row, trace.k, trace.ctx, block)
        torch.cuda.synchronize()
        cell.begin()
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(views[0].stream)):
                for layer in range(trace.layers):
                    cell.mark(THEIRS, layer, 0)
                    self.call(self.positions[layer], self.states[layer], self.table,
                              self.host[layer])
                    cell.mark(THEIRS, layer, 1)
        finally:
            cell.end(THEIRS)

    def replay(self, count):
        """Times of the loaded step, and with `count` how many rows were swapped in: a miss
        changes the tag of the row that it takes."""
        if not count:
            return self.cell.replay(THEIRS), 0
        before = [state.tokens.clone() for state in self.states]
        self.torch.cuda.synchronize()
        us = self.cell.replay(THEIRS)
        changed = [(state.tokens != old).sum() for state, old in zip(self.states, before)]
        return us, int(self.torch.stack(changed).sum())

    def check(self):
        return self.cell.check_other([state.out.data_ptr() for state in self.states],
                                     [state.buffer.data_ptr() for state in self.states],
                                     self.cell.lists.trace.batch * self.hot)
