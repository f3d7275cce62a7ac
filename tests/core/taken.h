/* The cases of taken.c. */
#ifndef PSCOMPY_TESTS_CORE_TAKEN_H
#define PSCOMPY_TESTS_CORE_TAKEN_H

void case_put_into_a_closed_region(void);
void case_get_from_a_closed_region(void);
void case_region_outlives_no_peer(void);
void case_landing_in_a_closed_region(void);
void case_landing_when_a_connection_fails(void);
void case_landing_when_a_peer_closes(void);
void case_fin_overtakes_fragments(void);
void case_fin_beside_a_landing(void);
void case_receive_with_a_late_writer(void);
void case_region_with_a_late_writer(void);

#endif
