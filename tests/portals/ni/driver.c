/* Runs the case that is named on the command line. */
#include "cases.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name) {#name, case_##name},
#include "cases.inc"
#undef CASE
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
