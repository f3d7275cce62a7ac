/* Computation that enters no library, for bench/loops.py: a shared object
 * that both pscompy's and mpi4py's processes load. */
#include <stddef.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Computes for so many seconds. Returns 1 if the bytes are all `value` then. */
int away(double seconds, const unsigned char *bytes, size_t len, int value)
{
    double end = now() + seconds;
    while (now() < end)
        ;
    return bytes[0] == value && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* Takes a time proportional to the number of steps, and uses no memory. */
unsigned long work(unsigned long steps)
{
    unsigned long x = 1;
    for (; steps > 0; steps--) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}
