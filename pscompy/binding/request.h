/* The type Request. */
#ifndef PSCOMPY_BINDING_REQUEST_H
#define PSCOMPY_BINDING_REQUEST_H

#include "state.h"

extern PyType_Spec psb_request_spec;

#endif
