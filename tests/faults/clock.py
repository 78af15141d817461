"""
A wall clock that can be stepped for one process tree: a few lines of C before libc's, reading the step from a file.

Only ``CLOCK_REALTIME`` is moved; durations, which are measured on other clocks, stay true, as when somebody sets a clock.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step_us;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STEPPED_CLOCK");
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        void *page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        step_us = page == MAP_FAILED ? 0 : page;
        close(file);
    }
}

int clock_gettime(clockid_t id, struct timespec *out) {
    if (!real) begin();
    int failed = real(id, out);
    if (!failed && step_us && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = out->tv_sec * 1000000000LL + out->tv_nsec + *step_us * 1000LL;
        out->tv_sec = ns / 1000000000LL;
        out->tv_nsec = ns % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class SteppedClock:
    """
    The wall clock of the processes that were started with :attr:`environment`.

    Args:
        folder: Where the library and the step are kept.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._step, library, source = folder / "step", folder / "clock.so", folder / "clock.c"
        self.step(0)
        source.write_text(_SOURCE)
        compiler = shutil.which("gcc") or shutil.which("cc")
        assert compiler is not None, "stepping a clock needs a C compiler"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._step)}

    def step(self, us: int) -> None:
        """Let the clock show *us* microseconds more than the machine's."""
        octets = us.to_bytes(8, "little", signed=True)
        if self._step.exists():
            with self._step.open("r+b") as file:
                file.write(octets)  # in place: it is mapped
        else:
            self._step.write_bytes(octets)
