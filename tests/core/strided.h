/* The cases of strided.c. */
#ifndef PSCOMPY_TESTS_CORE_STRIDED_H
#define PSCOMPY_TESTS_CORE_STRIDED_H

void case_strided_copies(void);
void case_strided_messages(void);
void case_strided_truncation(void);
void case_strided_given_back(void);
void case_strided_given_up(void);
void case_strided_left_in_flight(void);

#endif
