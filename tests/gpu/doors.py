#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tells who answers in this process where a program looks for the CUDA driver.

usage: [TOOL…] doors.py

One line of JSON: what LD_PRELOAD says, which libraries of tools and of ours are mapped, which file
dlopen("libcuda.so.1") gives, and whose addresses dlsym on it and its cuGetProcAddress_v2 answer.
A tool that stands in front of the driver may hand out addresses that we do not know as the
driver's; then our library is in the process and nothing comes to it. tests/gpu/nsight asks this.
"""
import ctypes
import json
import os
import re
import sys

NAMES = ("cuInit", "cuMemAlloc", "cuMemGetInfo", "cuLaunchKernel")
VERSION = 12000
LIBRARIES = re.compile(r"hisparse|injection|Interceptor|TreeLauncher|libcuda|cupti|nvperf|ToolsInj",
                       re.IGNORECASE)


class Found(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("at", ctypes.c_void_p)]


class LinkMap(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("file", ctypes.c_char_p)]


libc = ctypes.CDLL(None)
libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Found)]
libc.dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]


def mapped(pid="self"):
    """Files of tools and of ours in a process, as the kernel tells."""
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as lines:
            names = {os.path.basename(line.split()[-1]) for line in lines if ".so" in line}
    except OSError:
        return []
    return sorted(name for name in names if LIBRARIES.search(name))


def owner(address):
    found = Found()
    if not address:
        return None
    return os.path.basename(found.file.decode()) if libc.dladdr(address, found) else "no file's"


def main():
    told = dict(preload=os.environ.get("LD_PRELOAD"))
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(str(error))
    link = ctypes.POINTER(LinkMap)()
    if not libc.dlinfo(cuda._handle, 2, ctypes.byref(link)):  # RTLD_DI_LINKMAP
        told["dlopen"] = os.path.basename(link.contents.file.decode())
    told["dlsym"] = {name: owner(ctypes.cast(getattr(cuda, name, None), ctypes.c_void_p).value)
                     for name in ("cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2")}
    told["cuGetProcAddress_v2"] = {}
    for name in NAMES if hasattr(cuda, "cuGetProcAddress_v2") else ():
        entry, status = ctypes.c_void_p(), ctypes.c_int()
        cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(entry), VERSION, ctypes.c_uint64(0),
                                 ctypes.byref(status))
        told["cuGetProcAddress_v2"][name] = owner(entry.value)
    told["mapped"] = mapped()
    print("doors:", json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
