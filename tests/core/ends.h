/* The cases of ends.c. */
#ifndef PSCOMPY_TESTS_CORE_ENDS_H
#define PSCOMPY_TESTS_CORE_ENDS_H

void case_close_in_order(void);
void case_close_both(void);
void case_close_then_gone(void);
void case_fail_midway(void);
void case_gone_before_installed(void);
void case_sent_and_gone_before_installed(void);
void case_lazy_is_not_awaited(void);

#endif
