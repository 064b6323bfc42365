# SPDX-License-Identifier: MIT
"""What engines' processes do around CUDA: ctypes, subprocesses, fork, threads."""
import ctypes
import multiprocessing
import subprocess
import sys
import threading


def child(queue):
    queue.put(ctypes.CDLL("libcuda.so.1").cuInit(0))


def main():
    print(ctypes.CDLL(None).abs(-7))
    print(subprocess.run(["sh", "-c", "exit 3"]).returncode)
    multiprocessing.set_start_method("fork")
    queue = multiprocessing.Queue()
    worker = multiprocessing.Process(target=child, args=(queue,))
    worker.start()
    print("child", queue.get())
    worker.join()
    cuda = ctypes.CDLL("libcuda.so.1")
    print("init", cuda.cuInit(0))
    names = ("cuMemGetInfo_v2", "cuMemAlloc_v2", "cuNothingOfTheKind")
    print([hasattr(cuda, name) for name in names])
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(cuda.cuInit(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(answers)
    sys.exit(4)


if __name__ == "__main__":
    main()
