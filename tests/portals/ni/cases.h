/* Declares every case; cases.inc has one line for each. */
#ifndef PSCOMPY_TESTS_PORTALS_CASES_H
#define PSCOMPY_TESTS_PORTALS_CASES_H

#include "harness.h"

#define CASE(name) void case_##name(void);
#include "cases.inc"
#undef CASE

#endif
