/* The base type of pscompy.Connection. */
#pragma once

#include "state.h"

extern PyType_Spec psb_connection_spec;
