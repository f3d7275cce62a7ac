/* The cases of sleepers.c. */
#ifndef PSCOMPY_TESTS_CORE_SLEEPERS_H
#define PSCOMPY_TESTS_CORE_SLEEPERS_H

void case_a_send_that_leaves_wakes_nobody(void);
void case_polling_wakes_sleepers(void);
void case_sleepers_are_apart(void);
void case_news_before_arming(void);
void case_sleepers_outlive_workers(void);
void case_starved_beside_another(void);
void case_waits(void);
void case_waits_beside_a_passer_by(void);

#endif
