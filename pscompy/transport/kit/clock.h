/* Monotonic time in nanoseconds, and the pause instruction for spinning. */
#ifndef PSCOMPY_TRANSPORT_KIT_CLOCK_H
#define PSCOMPY_TRANSPORT_KIT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t psc_clock_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns a count of processor cycles, or of something of similar rate, to
 * compare short durations. Reading the clock instead may cost a system call on
 * some systems. One nanosecond is about 1 to 5 cycles. */
static inline uint64_t psc_clock_cycles(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_rdtsc();
#else
    return (uint64_t)psc_clock_now() * 3;
#endif
}

/* Returns now + timeout, or INT64_MAX if the timeout is INT64_MAX
 * ("forever"). */
static inline int64_t psc_clock_deadline(int64_t timeout_ns)
{
    int64_t now;

    if (timeout_ns == INT64_MAX)
        return INT64_MAX;
    now = psc_clock_now();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

static inline void psc_clock_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
