/* The type Request. */
#pragma once

#include "state.h"

extern PyType_Spec psb_request_spec;
