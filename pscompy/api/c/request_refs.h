/* The slots of the types Request and PersistentRequest for the garbage
 * collector. These functions run also after the module's state was cleared, so
 * they use nothing of it. */
#pragma once

#include "request_life.h"

int psb_request_traverse(PyObject *self, visitproc visit, void *arg);
int psb_request_clear(PyObject *self);
void psb_request_dealloc(PyObject *self);
