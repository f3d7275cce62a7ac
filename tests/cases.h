/* The cases of a suite in C: CASE(name) { ... } defines one and registers it
 * before main() begins. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    uint64_t caps; /* required of a transport; else the case is skipped */
    bool two_sides; /* needs a second interface */
    const struct test_case *next;
} test_case_t;

/* The cases of all files of the program. */
__attribute__((weak)) const test_case_t *test_cases;

#define CASE(title, ...)                                                       \
    static void case_##title(void);                                            \
    __attribute__((constructor)) static void register_##title(void)            \
    {                                                                          \
        static test_case_t it = {                                              \
            .name = #title, .run = case_##title, __VA_ARGS__};                 \
                                                                               \
        it.next = test_cases;                                                  \
        test_cases = &it;                                                      \
    }                                                                          \
    static void case_##title(void)

/* Returns NULL if there is no such case. */
static inline const test_case_t *test_case_find(const char *name)
{
    const test_case_t *it = test_cases;

    while (it && strcmp(it->name, name) != 0)
        it = it->next;
    return it;
}
