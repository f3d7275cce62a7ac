/* The type Worker. */
#pragma once

#include "state.h"

extern PyType_Spec psb_worker_spec;
