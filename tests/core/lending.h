/* The cases of lending.c. */
#ifndef PSCOMPY_TESTS_CORE_LENDING_H
#define PSCOMPY_TESTS_CORE_LENDING_H

void case_blocks(void);
void case_lending(void);
void case_lent_and_received(void);
void case_views_outlive_all(void);
void case_views_are_kept(void);
void case_lending_threads(void);
void case_hostile_loans(void);
void case_hostile_keys(void);

#endif
