/* For LD_PRELOAD: the time of day is WORLDS_CLOCK_AHEAD seconds ahead, to Python and to a JVM alike. Monotonic clocks and
 * waits are left alone: libfaketime moves these too or breaks them, and then a JVM hangs, and Python's sleep fails. */

#define _GNU_SOURCE
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t ahead(void)
{
    static int known;
    static time_t seconds;
    if (!known) {
        const char *text = getenv("WORLDS_CLOCK_AHEAD");
        seconds = text ? atol(text) : 0;
        known = 1;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept)
        *kept = now.tv_sec;
    return now.tv_sec;
}

/* Older Pythons wait by the time of day; the kernel's has not moved. */
int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    struct timespec true_until = *until, monotonic, now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic);
    clock_gettime(CLOCK_REALTIME, &now);
    true_until.tv_sec += monotonic.tv_sec - now.tv_sec;
    true_until.tv_nsec += monotonic.tv_nsec - now.tv_nsec;
    if (true_until.tv_nsec < 0) {
        true_until.tv_nsec += 1000000000L;
        true_until.tv_sec -= 1;
    } else if (true_until.tv_nsec >= 1000000000L) {
        true_until.tv_nsec -= 1000000000L;
        true_until.tv_sec += 1;
    }
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &true_until);
}
