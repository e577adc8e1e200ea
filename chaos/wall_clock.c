/* Preloaded into the processes of a walk: their wall clock is off by the seconds that a shared file holds (a double).
   Only the clock that people set is changed. Monotonic time, and with it every sleep and every wait for a duration, stays true,
   as it does on a machine whose clock is set. A wait until a moment of the wall clock, which librdkafka uses, is given to the
   kernel in the kernel's own time; without that it would end at once, and the client would turn in circles. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
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

/* Deadlines of monotonic clocks are counted from the boot of the machine, those of the wall clock from 1970. */
static struct timespec true_time(const struct timespec *told) {
    struct timespec at = *told;
    if (offset && at.tv_sec > 1000000000) at.tv_sec -= (time_t)*offset;
    return at;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict told) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* The oldest version of this symbol, which plain dlsym may find, takes another kind of condition. */
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec at = true_time(told);
    return real(cond, mutex, &at);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict told) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec at = true_time(told);
    return real(semaphore, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict told) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    struct timespec at = true_time(told);
    return real(mutex, &at);
}

/* The same for threads of C11, which do not come by way of those of POSIX. */
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict told) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec at = true_time(told);
    return real(cond, mutex, &at);
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict told) {
    static int (*real)(mtx_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "mtx_timedlock");
    struct timespec at = true_time(told);
    return real(mutex, &at);
}
