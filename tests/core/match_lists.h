/* The case of match_lists.c. */
#ifndef PSCOMPY_TESTS_CORE_MATCH_LISTS_H
#define PSCOMPY_TESTS_CORE_MATCH_LISTS_H

void case_match_lists(void);

#endif
