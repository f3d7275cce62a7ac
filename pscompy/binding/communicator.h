/* The base type of pscompy.Communicator. */
#pragma once

#include "state.h"

/* Not -1: a rank that a program computes wrongly must raise IndexError. */
#define PSB_ANY_SOURCE INT32_MIN

extern PyType_Spec psb_communicator_spec;
