/* The base type of pscompy.Communicator. */
#ifndef PSCOMPY_BINDING_COMMUNICATOR_H
#define PSCOMPY_BINDING_COMMUNICATOR_H

#include "state.h"

/* Not -1: a rank that a program computes wrongly must raise IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

extern PyType_Spec psb_communicator_spec;

#endif
