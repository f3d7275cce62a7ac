/* The cases of giveback.c. */
#ifndef PSCOMPY_TESTS_CORE_GIVEBACK_H
#define PSCOMPY_TESTS_CORE_GIVEBACK_H

void case_given_back_to_its_place(void);
void case_given_back_without_its_buffer(void);
void case_given_back_to_who_waits(void);
void case_given_back_truncated(void);
void case_given_back_too_late(void);
void case_given_up_on_its_way(void);
void case_given_up_twice(void);
void case_given_up_and_lost(void);

#endif
