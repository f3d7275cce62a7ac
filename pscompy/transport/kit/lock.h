/* A lock of one word: one atomic operation to acquire and one to release it
 * without contention, and a futex with contention (0 free, 1 held, 2 held with
 * waiters). */
#ifndef PSCOMPY_TRANSPORT_KIT_LOCK_H
#define PSCOMPY_TRANSPORT_KIT_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct psc_lock {
    atomic_uint word;
} psc_lock_t;

/* Returns false if a signal or the time-out ended the sleep. */
static inline bool psc_futex_wait(atomic_uint *word, uint32_t expected,
                                  const struct timespec *timeout)
{
    return syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, expected,
                   timeout, NULL, 0) == 0 ||
           (errno != EINTR && errno != ETIMEDOUT);
}

static inline void psc_futex_wake(atomic_uint *word, int waiters)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, waiters, NULL,
            NULL, 0);
}

static inline bool psc_lock_try(psc_lock_t *lock)
{
    unsigned free = 0;

    return atomic_compare_exchange_strong_explicit(
        &lock->word, &free, 1, memory_order_acquire, memory_order_relaxed);
}

/* Returns true if another thread may be sleeping until the lock is free. */
static inline bool psc_lock_wanted(const psc_lock_t *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_relaxed) == 2;
}

static inline void psc_lock_acquire(psc_lock_t *lock)
{
    if (psc_lock_try(lock))
        return;
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        psc_futex_wait(&lock->word, 2, NULL);
}

static inline void psc_lock_release(psc_lock_t *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        psc_futex_wake(&lock->word, 1);
}

#endif
