/* The cases of fins.c. */
#ifndef PSCOMPY_TESTS_CORE_FINS_H
#define PSCOMPY_TESTS_CORE_FINS_H

void case_fins_together(void);
void case_fin_while_another_moves(void);
void case_fins_refused(void);
void case_fins_and_close(void);
void case_fins_and_end(void);
void case_hostile_fins(void);

#endif
