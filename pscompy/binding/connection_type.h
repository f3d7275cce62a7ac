/* The base type of pscompy.Connection. */
#ifndef PSCOMPY_BINDING_CONNECTION_TYPE_H
#define PSCOMPY_BINDING_CONNECTION_TYPE_H

#include "state.h"

extern PyType_Spec psb_connection_spec;

#endif
