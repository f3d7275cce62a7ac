/* The cases of driven.c. */
#ifndef PSCOMPY_TESTS_CORE_DRIVEN_H
#define PSCOMPY_TESTS_CORE_DRIVEN_H

void case_driven(void);
void case_driven_and_waited(void);

#endif
