/* Runs the case that is named on the command line. */
#include "harness.h"

int main(int argc, char **argv)
{
    const test_case_t *found = argc == 2 ? test_case_find(argv[1]) : NULL;

    if (found) {
        found->run();
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
