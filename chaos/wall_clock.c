/* Preloaded into the processes of a walk: their wall clock is off by the seconds that a shared file holds (a double).
   Only the clock that people set is changed. Monotonic time, and with it every sleep and every timed wait, stays true,
   as it does on a machine whose clock is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock)(clockid_t, struct timespec *);
static volatile const double *offset;

__attribute__((constructor)) static void begin(void) {
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *seen = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (seen != MAP_FAILED) offset = seen;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock) begin();
    int failed = real_clock(clock, at);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += (time_t)*offset;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
