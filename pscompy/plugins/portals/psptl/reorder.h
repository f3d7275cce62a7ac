/* Messages that may overtake each other, and come twice, put back into their
 * order. Pure: no fabric, no allocation. `held` has a place for each message
 * that may be under way; numbers wrap around. */
#ifndef PSCOMPY_PORTALS_WINDOW_H
#define PSCOMPY_PORTALS_WINDOW_H

#include <stddef.h>
#include <stdint.h>

typedef struct psptl_window {
    void **held;       /* `size` places, by number modulo size */
    uint32_t size;     /* a power of two */
    uint32_t expected; /* the next number */
} psptl_window_t;

typedef enum psptl_window_verdict {
    PSPTL_WINDOW_NEXT,      /* its turn has come */
    PSPTL_WINDOW_EARLY,     /* kept until its turn */
    PSPTL_WINDOW_DUPLICATE, /* it was here before */
    PSPTL_WINDOW_BEYOND     /* nobody may send that far ahead */
} psptl_window_verdict_t;

static inline uint32_t psptl_power_of_two(uint32_t n)
{
    uint32_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

/* The window keeps the item when the verdict is NEXT or EARLY. */
static inline psptl_window_verdict_t
psptl_window_put(psptl_window_t *window, uint32_t number, void *item)
{
    uint32_t ahead = number - window->expected;
    void **place = &window->held[number & (window->size - 1)];

    if (ahead >= UINT32_MAX / 2)
        return PSPTL_WINDOW_DUPLICATE;
    if (ahead >= window->size)
        return PSPTL_WINDOW_BEYOND;
    if (*place)
        return PSPTL_WINDOW_DUPLICATE;
    *place = item;
    return ahead == 0 ? PSPTL_WINDOW_NEXT : PSPTL_WINDOW_EARLY;
}

/* What comes next; NULL: it is not here yet. */
static inline void *psptl_window_next(const psptl_window_t *window)
{
    return window->held[window->expected & (window->size - 1)];
}

static inline void *psptl_window_take(psptl_window_t *window)
{
    void **place = &window->held[window->expected & (window->size - 1)];
    void *item = *place;

    if (item) {
        *place = NULL;
        window->expected++;
    }
    return item;
}

#endif
