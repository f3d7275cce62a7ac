/* Cases on what the core refuses of a transport. */
#ifndef PSCOMPY_TESTS_CORE_INTERFACES_H
#define PSCOMPY_TESTS_CORE_INTERFACES_H

void case_capability_without_its_call(void);
void case_transport_without_a_mandatory_call(void);

#endif
